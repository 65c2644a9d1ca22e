// A service that locks with etcd's own Go library, for tests of who else may hold the lock.
//
// It is started with the endpoints and the seconds that its session outlives it, and reads one command a line:
//
//	try NAME     locks NAME if it is free: "locked NAME FENCE", or "refused NAME"
//	lock NAME    waits for NAME, and goes on reading meanwhile: "locked NAME FENCE" once it has it
//	unlock NAME  "unlocked NAME"
//
// FENCE is the revision at which its key was created.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// Answers come from several goroutines, a line each.
var output sync.Mutex

func say(format string, values ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", values...)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "the service that locks in Go:", err)
		os.Exit(1)
	}
}

// Returns the revision at which the key was created that holds the lock.
func fence(client *clientv3.Client, mutex *concurrency.Mutex) int64 {
	found, err := client.Get(context.Background(), mutex.Key())
	fail(err)
	if len(found.Kvs) == 0 {
		return 0
	}
	return found.Kvs[0].CreateRevision
}

func main() {
	seconds, err := strconv.Atoi(os.Args[2])
	fail(err)
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	fail(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(seconds))
	fail(err)
	say("ready")
	all := map[string]*concurrency.Mutex{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, name, _ := strings.Cut(lines.Text(), " ")
		mutex := all[name]
		if mutex == nil {
			mutex = concurrency.NewMutex(session, name)
			all[name] = mutex
		}
		switch command {
		case "try":
			err := mutex.TryLock(context.Background())
			if errors.Is(err, concurrency.ErrLocked) {
				say("refused %s", name)
				continue
			}
			fail(err)
			say("locked %s %d", name, fence(client, mutex))
		case "lock":
			go func() {
				// A cluster that elects a leader fails it, and may end the session meanwhile.
				for mutex.Lock(context.Background()) != nil {
					time.Sleep(100 * time.Millisecond)
					if again, err := concurrency.NewSession(client, concurrency.WithTTL(seconds)); err == nil {
						mutex = concurrency.NewMutex(again, name)
					}
				}
				say("locked %s %d", name, fence(client, mutex))
			}()
		case "unlock":
			fail(mutex.Unlock(context.Background()))
			say("unlocked %s", name)
		default:
			fail(fmt.Errorf("an unknown command: %q", command))
		}
	}
	// Its locks are given back with its session.
	fail(session.Close())
}
