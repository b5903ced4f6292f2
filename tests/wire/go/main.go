// The real gocraft/work, told what to do by the tests: one JSON request a line on stdin, one JSON answer a line on stdout.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/gocraft/work"
	"github.com/gomodule/redigo/redis"
)

// request is one line of the tests; each command reads the fields it needs.
type request struct {
	Do          string                 `json:"do"`
	Name        string                 `json:"name"`
	Args        map[string]interface{} `json:"args"`
	Key         map[string]interface{} `json:"key"`
	Seconds     int64                  `json:"seconds"`
	At          int64                  `json:"at"`
	ID          string                 `json:"id"`
	Jobs        map[string]jobSpec     `json:"jobs"`
	Periodic    map[string]string      `json:"periodic"`
	Concurrency uint                   `json:"concurrency"`
	Address     string                 `json:"address"`
}

type answer struct {
	Value interface{} `json:"value"`
	Error string      `json:"error"`
}

// program is what one process of the tests holds.
type program struct {
	namespace string
	redis     *redis.Pool
	enqueuer  *work.Enqueuer
	client    *work.Client
	workers   *workers
}

func main() {
	address := flag.String("redis", "127.0.0.1:6379", "host:port of the server")
	namespace := flag.String("ns", "work", "namespace")
	flag.Parse()

	pool := &redis.Pool{
		MaxActive: 20, MaxIdle: 20, Wait: true, IdleTimeout: time.Minute,
		Dial: func() (redis.Conn, error) { return redis.Dial("tcp", *address) },
	}
	here := &program{
		namespace: *namespace,
		redis:     pool,
		enqueuer:  work.NewEnqueuer(*namespace, pool),
		client:    work.NewClient(*namespace, pool),
		workers:   &workers{released: make(chan struct{})},
	}
	// The library logs to stdout, which is where the tests read answers.
	answers := json.NewEncoder(os.Stdout)
	os.Stdout = os.Stderr
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		value, err := here.handle(lines.Bytes())
		reply := answer{Value: value}
		if err != nil {
			reply.Error = err.Error()
		}
		if err := answers.Encode(reply); err != nil {
			fmt.Fprintln(os.Stderr, "the answer could not be written:", err)
			os.Exit(1)
		}
	}
}

func (p *program) handle(line []byte) (interface{}, error) {
	asked, err := read(line)
	if err != nil {
		return nil, err
	}
	switch asked.Do {
	case "enqueue":
		return p.enqueuer.Enqueue(asked.Name, asked.Args)
	case "enqueue_in":
		return p.enqueuer.EnqueueIn(asked.Name, asked.Seconds, asked.Args)
	case "enqueue_unique":
		return p.enqueuer.EnqueueUnique(asked.Name, asked.Args)
	case "enqueue_unique_in":
		return p.enqueuer.EnqueueUniqueIn(asked.Name, asked.Seconds, asked.Args)
	case "enqueue_unique_by_key":
		return enqueueByKey(p.enqueuer, asked)
	case "start":
		return nil, p.workers.start(p, asked)
	case "release":
		return nil, p.workers.release()
	case "ran":
		return p.workers.seen(), nil
	case "stop":
		return nil, p.workers.stop()
	default:
		return p.administer(asked)
	}
}

// read keeps the digits of numbers, as a program that enqueues its own integers would.
func read(line []byte) (request, error) {
	var asked request
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	err := decoder.Decode(&asked)
	return asked, err
}
