// asynq under the contract of contract.py. All names share its default queue.
package main

import (
	"context"
	"os"
	"strconv"
	"time"

	"dayjob/benchmarks/contract"
	"github.com/hibiken/asynq"
)

var client *asynq.Client

// options are how a task is enqueued on the path that is measured.
func options() []asynq.Option {
	switch contract.Settings.Path {
	case "raises":
		return []asynq.Option{asynq.MaxRetry(0)}
	case "retry":
		return []asynq.Option{asynq.MaxRetry(1)}
	case "scheduled":
		return []asynq.Option{asynq.ProcessAt(contract.Settings.Due)}
	case "keep":
		return []asynq.Option{asynq.Retention(time.Minute)}
	case "unique":
		return []asynq.Option{asynq.Unique(time.Minute)}
	}
	return nil
}

func run(_ context.Context, task *asynq.Task) error {
	i, err := strconv.Atoi(string(task.Payload()))
	contract.Must(err)
	if contract.Settings.Path == "nested" && task.Type() != "child" {
		contract.FirstRun(i)
		_, err := client.Enqueue(asynq.NewTask("child", task.Payload()))
		return err
	}
	if err := contract.Take(i); err != nil {
		return err
	}
	if contract.Settings.Path == "keep" {
		_, err = task.ResultWriter().Write(task.Payload())
	}
	return err
}

func main() {
	address := asynq.RedisClientOpt{Addr: contract.Settings.Address, PoolSize: contract.Settings.Concurrency + 5}
	client = asynq.NewClient(address)
	if os.Args[1] == "enqueue" {
		how := options()
		contract.Enqueue(func(name string, i int) error {
			_, err := client.Enqueue(asynq.NewTask(name, []byte(strconv.Itoa(i))), how...)
			return err
		})
		return
	}
	server := asynq.NewServer(address, asynq.Config{
		Concurrency: contract.Settings.Concurrency, LogLevel: asynq.WarnLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 0 },
	})
	names := asynq.NewServeMux()
	for _, name := range append([]string{"child"}, contract.Settings.Names...) {
		names.HandleFunc(name, run)
	}
	contract.Must(server.Start(names))
	contract.UntilStopped()
	server.Shutdown()
}
