package main

import (
	"fmt"

	"github.com/gocraft/work/webui"
)

// listing is a page of jobs and how many there are in all.
type listing struct {
	Count int64       `json:"count"`
	Jobs  interface{} `json:"jobs"`
}

func list[T any](jobs []T, count int64, err error) (interface{}, error) {
	return listing{Count: count, Jobs: jobs}, err
}

// administer is what an operator does with the library's client, or with its web page.
func (p *program) administer(asked request) (interface{}, error) {
	switch asked.Do {
	case "queues":
		return p.client.Queues()
	case "pools":
		return p.client.WorkerPoolHeartbeats()
	case "scheduled":
		return list(p.client.ScheduledJobs(1))
	case "retry":
		return list(p.client.RetryJobs(1))
	case "dead":
		return list(p.client.DeadJobs(1))
	case "delete_scheduled":
		return nil, p.client.DeleteScheduledJob(asked.At, asked.ID)
	case "delete_retry":
		return nil, p.client.DeleteRetryJob(asked.At, asked.ID)
	case "delete_dead":
		return nil, p.client.DeleteDeadJob(asked.At, asked.ID)
	case "retry_dead":
		return nil, p.client.RetryDeadJob(asked.At, asked.ID)
	case "retry_all_dead":
		return nil, p.client.RetryAllDeadJobs()
	case "delete_all_dead":
		return nil, p.client.DeleteAllDeadJobs()
	case "serve":
		webui.NewServer(p.namespace, p.redis, asked.Address).Start()
		return nil, nil
	default:
		return nil, fmt.Errorf("no command %q", asked.Do)
	}
}
