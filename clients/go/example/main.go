// One of everything. REDIS_URL and NAMESPACE say where; a pool with a job type create_watch(user_id: int) runs them.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"dayjob"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	options, err := redis.ParseURL(setting("REDIS_URL", "redis://localhost:6379"))
	check(err)
	client := redis.NewClient(options)
	defer client.Close()
	jobs := dayjob.New(client, setting("NAMESPACE", "shop"))

	job, err := jobs.Enqueue(ctx, "create_watch", user(1))
	var unknown *dayjob.Unknown
	if errors.As(err, &unknown) {
		fmt.Println("no answer; asking again")
		var stored []*dayjob.Job
		stored, err = unknown.Repeat(ctx)
		check(err)
		job = stored[0]
	}
	check(err)
	fmt.Println("stored", job.ID)

	soon := time.Now().Add(200 * time.Millisecond)
	check(second(jobs.EnqueueIn(ctx, "create_watch", 200*time.Millisecond, user(2))))
	check(second(jobs.EnqueueAt(ctx, "create_watch", soon, user(3))))
	check(second(jobs.EnqueueUnique(ctx, "create_watch", user(4))))
	if _, err := jobs.EnqueueUnique(ctx, "create_watch", user(4)); errors.Is(err, dayjob.ErrDuplicate) {
		fmt.Println("a duplicate")
	}
	check(second(jobs.EnqueueUniqueIn(ctx, "create_watch", 200*time.Millisecond, user(5))))
	check(second(jobs.EnqueueUniqueAt(ctx, "create_watch", soon, user(6))))
	check(second(jobs.Sourced("acme").Enqueue(ctx, "create_watch", user(7))))
	check(second(jobs.EnqueueMany(ctx, "create_watch", []dayjob.Args{user(8), user(9)})))
	kept := jobs.Using(dayjob.Options{ID: "watch-10", Expires: time.Hour})
	check(second(kept.Enqueue(ctx, "create_watch", user(10))))
}

func user(id int) dayjob.Args { return dayjob.Args{"user_id": id} }

func setting(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

func second(_ any, err error) error { return err }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
