import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.SetParams;

/** Jedis against a running cluster; the argument is the port of the first region. */
public final class Check {
    public static void main(String[] arguments) {
        int port = Integer.parseInt(arguments[0]);
        for (RedisProtocol protocol : new RedisProtocol[] {RedisProtocol.RESP2, RedisProtocol.RESP3}) {
            check(port, protocol);
        }
    }

    private static Jedis open(int port, RedisProtocol protocol, int database) {
        return new Jedis(
                new HostAndPort("127.0.0.1", port),
                DefaultJedisClientConfig.builder().protocol(protocol).database(database).build());
    }

    private static void check(int port, RedisProtocol protocol) {
        String p = "jedis" + protocol + ":";
        try (Jedis ca = open(port, protocol, 0);
                Jedis ir = open(port + 2, protocol, 0);
                Jedis rsc = open(port + 1, protocol, 1)) {
            equal("PONG", ca.ping());
            equal("OK", ca.set(p + "s", "value", SetParams.setParams().ex(60)));
            equal("value", ir.get(p + "s"));
            equal(null, ir.get(p + "none"));
            equal(null, ca.set(p + "s", "other", SetParams.setParams().nx()));
            equal(2L, ca.rpush(p + "l", "a", "b"));
            equal(List.of("a", "b"), ir.lrange(p + "l", 0, -1));
            equal(2L, ca.hset(p + "h", Map.of("f", "1", "g", "2")));
            equal(Map.of("f", "1", "g", "2"), ir.hgetAll(p + "h"));
            equal(Arrays.asList("value", null), ca.mget(p + "s", p + "none"));
            try {
                ca.incr(p + "l");
                throw new AssertionError("INCR of a list is done");
            } catch (JedisDataException error) {
                equal(true, error.getMessage().startsWith("WRONGTYPE"));
            }
            Pipeline pipeline = ca.pipelined();
            Response<Long> last = null;
            for (int i = 0; i < 100; i++) {
                last = pipeline.incr(p + "n");
            }
            pipeline.sync();
            equal(100L, last.get());
            ca.watch(p + "n");
            Transaction transaction = ca.multi();
            transaction.incr(p + "n");
            transaction.get(p + "n");
            equal(Arrays.asList(101L, "101"), transaction.exec());
            equal("OK", rsc.set(p + "s", "rsc"));
            equal("rsc", rsc.get(p + "s"));
            equal("value", ca.get(p + "s"));
        }
    }

    private static void equal(Object expected, Object found) {
        if (!Objects.equals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }
}
