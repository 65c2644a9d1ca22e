package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type rueidislockSystem struct{ locker rueidislock.Locker }

// Its majority is one of keys in a single deployment, not of servers: here it is one key.
func newRueidislock(addresses []string) system {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addresses[:1], ForceSingleClient: true},
		KeyMajority:    1,
		KeyValidity:    ttl,
		NoLoopTracking: true,
		// By default it gives up after 20 ms, which a busy machine may need.
		TryNextAfter: time.Second,
	})
	if err != nil {
		fail(err)
	}
	return rueidislockSystem{locker}
}

func (s rueidislockSystem) try(name string) (release, error) {
	_, cancel, err := s.locker.TryWithContext(context.Background(), name)
	return whenDone(cancel), err
}

func (s rueidislockSystem) wait(name string, deadline time.Time) (release, error) {
	ctx, stop := context.WithDeadline(context.Background(), deadline)
	_, cancel, err := s.locker.WithContext(ctx, name)
	return whenDone(func() { cancel(); stop() }), err
}

func whenDone(cancel func()) release {
	return func() error {
		cancel()
		return nil
	}
}
