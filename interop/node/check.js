// ioredis against a running cluster: node check.js PORT
const assert = require("node:assert/strict");
const { Redis } = require("ioredis");

async function main(port) {
  const open = (region, db = 0) => new Redis({ port: port + region, db, maxRetriesPerRequest: 1 });
  const [ca, ir, rsc] = [open(0), open(2), open(1, 1)];
  try {
    assert.equal(await ca.ping(), "PONG");
    assert.equal(await ca.set("io:s", "value", "EX", 60), "OK");
    assert.equal(await ir.get("io:s"), "value");
    assert.equal(await ir.get("io:none"), null);
    assert.equal(await ca.set("io:s", "other", "NX"), null);
    assert.equal(await ca.rpush("io:l", "a", "b"), 2);
    assert.deepEqual(await ir.lrange("io:l", 0, -1), ["a", "b"]);
    assert.equal(await ca.hset("io:h", { f: 1, g: 2 }), 2);
    assert.deepEqual({ ...(await ir.hgetall("io:h")) }, { f: "1", g: "2" });
    assert.deepEqual(await ca.mget("io:s", "io:none"), ["value", null]);
    await assert.rejects(ca.incr("io:l"), /WRONGTYPE/);
    const piped = await ca.pipeline().set("io:p", "1").incr("io:p").get("io:p").exec();
    assert.deepEqual(piped, [[null, "OK"], [null, 2], [null, "2"]]);
    const multi = await ca.multi().set("io:m", "1").incr("io:m").exec();
    assert.deepEqual(multi, [[null, "OK"], [null, 2]]);
    await Promise.all(Array.from({ length: 100 }, (_, i) => [ca, ir][i % 2].incr("io:n")));
    assert.equal(await ca.get("io:n"), "100");
    assert.equal(await rsc.set("io:s", "rsc"), "OK");
    assert.equal(await rsc.get("io:s"), "rsc");
    assert.equal(await ca.get("io:s"), "value");
    const found = [];
    for await (const keys of ca.scanStream({ match: "io:*", count: 2 })) found.push(...keys);
    assert.deepEqual([...new Set(found)].sort(), ["io:h", "io:l", "io:m", "io:n", "io:p", "io:s"]);
  } finally {
    for (const client of [ca, ir, rsc]) client.disconnect();
  }
}

const port = Number(process.argv[2]);
if (!port) {
  console.error("usage: node check.js PORT");
  process.exit(2);
}
main(port).catch((error) => {
  console.error("ioredis:", error);
  process.exit(1);
});
