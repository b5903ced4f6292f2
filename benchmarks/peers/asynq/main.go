// asynq under the contract of contract.py. All names share its default queue.
package main

import (
	"context"
	"os"
	"strconv"

	"dayjob/benchmarks/contract"
	"github.com/hibiken/asynq"
)

func main() {
	address := asynq.RedisClientOpt{Addr: contract.Settings.Address, PoolSize: contract.Settings.Concurrency + 5}
	if os.Args[1] == "enqueue" {
		client := asynq.NewClient(address)
		contract.Enqueue(func(name string, i int) error {
			_, err := client.Enqueue(asynq.NewTask(name, []byte(strconv.Itoa(i))))
			return err
		})
		return
	}
	server := asynq.NewServer(address, asynq.Config{Concurrency: contract.Settings.Concurrency, LogLevel: asynq.WarnLevel})
	names := asynq.NewServeMux()
	for _, name := range contract.Settings.Names {
		names.HandleFunc(name, func(_ context.Context, task *asynq.Task) error {
			i, err := strconv.Atoi(string(task.Payload()))
			contract.Must(err)
			contract.Handle(i)
			return nil
		})
	}
	contract.Must(server.Start(names))
	contract.UntilStopped()
	server.Shutdown()
}
