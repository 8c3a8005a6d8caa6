// go-redis against a running cluster: go run . PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

func must(what string, ok bool, got any) {
	if !ok {
		fmt.Fprintf(os.Stderr, "go-redis: %s: got %v\n", what, got)
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . PORT")
		os.Exit(2)
	}
	var first int
	fmt.Sscan(os.Args[1], &first)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, protocol := range []int{2, 3} {
		client := func(region, db int) *redis.Client {
			return redis.NewClient(&redis.Options{
				Addr: fmt.Sprintf("127.0.0.1:%d", first+region), Protocol: protocol, DB: db,
			})
		}
		ca, ir, rsc := client(0, 0), client(2, 0), client(1, 1)
		p := fmt.Sprintf("go%d:", protocol)

		pong, err := ca.Ping(ctx).Result()
		must("PING", err == nil && pong == "PONG", err)
		must("SET", ca.Set(ctx, p+"s", "value", time.Minute).Err() == nil, nil)
		got, err := ir.Get(ctx, p+"s").Result()
		must("GET in another region", err == nil && got == "value", got)
		_, err = ir.Get(ctx, p+"none").Result()
		must("GET of an absent key", errors.Is(err, redis.Nil), err)
		ttl := ir.TTL(ctx, p+"s").Val()
		must("TTL", ttl > 55*time.Second && ttl <= time.Minute, ttl)
		set, err := ca.SetNX(ctx, p+"s", "other", 0).Result()
		must("SET NX of a present key", err == nil && !set, set)
		must("RPUSH", ca.RPush(ctx, p+"l", "a", "b").Val() == 2, nil)
		must("LRANGE", fmt.Sprint(ir.LRange(ctx, p+"l", 0, -1).Val()) == "[a b]", nil)
		must("HSET", ca.HSet(ctx, p+"h", "f", "1", "g", "2").Val() == 2, nil)
		must("HGETALL", fmt.Sprint(ir.HGetAll(ctx, p+"h").Val()) == "map[f:1 g:2]", nil)
		must("MGET", fmt.Sprint(ca.MGet(ctx, p+"s", p+"none").Val()) == "[value <nil>]", nil)
		err = ca.Incr(ctx, p+"l").Err()
		must("INCR of a list", err != nil && redis.HasErrorPrefix(err, "WRONGTYPE"), err)

		pipe := ca.Pipeline()
		for i := 0; i < 100; i++ {
			pipe.Incr(ctx, p+"pipe")
		}
		_, err = pipe.Exec(ctx)
		must("pipeline", err == nil && ir.Get(ctx, p+"pipe").Val() == "100", err)

		// Ten goroutines in two regions: optimistic transactions on one key lose no increment.
		var group sync.WaitGroup
		for g := 0; g < 10; g++ {
			one := []*redis.Client{ca, ir}[g%2]
			group.Add(1)
			go func() {
				defer group.Done()
				increment := func(tx *redis.Tx) error {
					n, err := tx.Get(ctx, p+"tx").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						pipe.Set(ctx, p+"tx", n+1, 0)
						return nil
					})
					return err
				}
				for done := 0; done < 5; {
					err := one.Watch(ctx, increment, p+"tx")
					must("WATCH", err == nil || errors.Is(err, redis.TxFailedErr), err)
					if err == nil {
						done++
					}
				}
			}()
		}
		group.Wait()
		must("transactions", ca.Get(ctx, p+"tx").Val() == "50", ca.Get(ctx, p+"tx").Val())

		must("SET in rsc", rsc.Set(ctx, p+"s", "rsc", 0).Err() == nil, nil)
		must("keyspaces are apart", rsc.Get(ctx, p+"s").Val() == "rsc" && ca.Get(ctx, p+"s").Val() == "value", nil)
		for _, c := range []*redis.Client{ca, ir, rsc} {
			must("Close", c.Close() == nil, nil)
		}
	}
}
