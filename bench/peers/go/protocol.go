// The way in which the runner and its peers talk: see ../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const ttl = 10 * time.Second

// A release, or an error.
type release func() error

// What a library has to offer.
type system interface {
	// One attempt.
	try(name string) (release, error)
	// Attempts until the time is up.
	wait(name string, deadline time.Time) (release, error)
}

// One that says when its locks are lost.
type teller interface {
	lost() <-chan struct{}
}

type arguments map[string]string

func (a arguments) number(key string) float64 {
	number, err := strconv.ParseFloat(a[key], 64)
	if err != nil {
		fail(fmt.Errorf("%s=%s is no number", key, a[key]))
	}
	return number
}

// A float is too coarse for these.
func (a arguments) nanoseconds(key string) int64 {
	number, err := strconv.ParseInt(a[key], 10, 64)
	if err != nil {
		fail(fmt.Errorf("%s=%s is no number", key, a[key]))
	}
	return number
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func monotonicNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		fail(err)
	}
	return now.Nano()
}

func cpuSeconds() float64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// Counts failures, and keeps the first.
type failures struct {
	mutex sync.Mutex
	count int
	first *string
}

func (f *failures) add(err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.count++
	if f.first == nil {
		text := err.Error()
		f.first = &text
	}
}

type cycleReport struct {
	Cycles     int     `json:"cycles"`
	Seconds    float64 `json:"seconds"`
	CpuSeconds float64 `json:"cpu_seconds"`
	P50Us      float64 `json:"p50_us"`
	P99Us      float64 `json:"p99_us"`
	// p50 and p99 of its two halves.
	LockUs    [2]float64 `json:"lock_us"`
	ReleaseUs [2]float64 `json:"release_us"`
	Failed    int        `json:"failed"`
	Error     *string    `json:"error"`
}

// What one cycle took, until it had the lock and until that was released.
type sample struct{ lock, both int64 }

// Each worker has so many `names`, which it uses in turn; zero of them are a new one for each cycle.
func cycle(s system, prefix string, concurrency, names int, count int64, seconds float64) cycleReport {
	var failed failures
	var begun atomic.Int64
	samples := make([][]sample, concurrency)
	cpu, start := cpuSeconds(), time.Now()
	end := start.Add(time.Duration(seconds * float64(time.Second)))
	var workers sync.WaitGroup
	for worker := range concurrency {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for serial := 0; time.Now().Before(end) && begun.Add(1) <= count; serial++ {
				which := serial
				if names > 0 {
					which = serial % names
				}
				name := fmt.Sprintf("%s/%d/%d", prefix, worker, which)
				from := time.Now()
				release, err := s.try(name)
				locked := time.Since(from)
				if err == nil {
					err = release()
				}
				if err != nil {
					failed.add(err)
				} else {
					took := sample{int64(locked), int64(time.Since(from))}
					samples[worker] = append(samples[worker], took)
				}
			}
		}()
	}
	workers.Wait()
	report := cycleReport{Seconds: time.Since(start).Seconds(), CpuSeconds: cpuSeconds() - cpu}
	var all []sample
	for _, some := range samples {
		all = append(all, some...)
	}
	report.Cycles, report.Failed, report.Error = len(all), failed.count, failed.first
	both := quantilesUs(all, func(it sample) int64 { return it.both })
	report.P50Us, report.P99Us = both[0], both[1]
	report.LockUs = quantilesUs(all, func(it sample) int64 { return it.lock })
	report.ReleaseUs = quantilesUs(all, func(it sample) int64 { return it.both - it.lock })
	return report
}

// p50 and p99 of some part of all samples.
func quantilesUs(samples []sample, part func(sample) int64) [2]float64 {
	if len(samples) == 0 {
		return [2]float64{}
	}
	all := make([]int64, len(samples))
	for i, it := range samples {
		all[i] = part(it)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	last := len(all) - 1
	return [2]float64{float64(all[last/2]) / 1e3, float64(all[last*99/100]) / 1e3}
}

type contendReport struct {
	Turns      [][4]int64 `json:"turns"`
	CpuSeconds float64    `json:"cpu_seconds"`
	Failed     int        `json:"failed"`
	Error      *string    `json:"error"`
}

func contend(s system, args arguments) contendReport {
	first, waiters := int(args.number("first")), int(args.number("waiters"))
	hold := time.Duration(args.number("hold_us")) * time.Microsecond
	from, to := args.nanoseconds("from_ns"), args.nanoseconds("to_ns")
	var failed failures
	var mutex sync.Mutex
	turns := [][4]int64{}
	cpu := cpuSeconds()
	var all sync.WaitGroup
	for waiter := first; waiter < first+waiters; waiter++ {
		all.Add(1)
		go func() {
			defer all.Done()
			time.Sleep(time.Duration(from - monotonicNs()))
			for {
				time.Sleep(2500*time.Microsecond + time.Duration(rand.Int63n(int64(5*time.Millisecond))))
				asked := monotonicNs()
				if asked >= to {
					return
				}
				turn := [4]int64{int64(waiter), asked, 0, 0}
				release, err := s.wait(args["name"], time.Now().Add(time.Duration(to-asked)))
				if err == nil {
					turn[2] = monotonicNs()
					time.Sleep(hold)
					turn[3] = monotonicNs()
					err = release()
				}
				// Whoever gets nothing by the end has waited in vain, and that is no failure.
				if err != nil && monotonicNs() < to {
					failed.add(err)
				}
				mutex.Lock()
				turns = append(turns, turn)
				mutex.Unlock()
			}
		}()
	}
	all.Wait()
	return contendReport{turns, cpuSeconds() - cpu, failed.count, failed.first}
}

type beliefReport struct {
	AcquiredNs int64 `json:"acquired_ns"`
	UntilNs    int64 `json:"until_ns"`
}

// Waits for a lock, and holds it until it is told of its loss, or the time is up.
func believe(s system, args arguments) beliefReport {
	to := args.nanoseconds("to_ns")
	left := func() time.Duration { return time.Duration(to - monotonicNs()) }
	release, err := s.wait(args["name"], time.Now().Add(left()))
	if err != nil {
		return beliefReport{}
	}
	report := beliefReport{AcquiredNs: monotonicNs()}
	if args["hold"] == "1" {
		select {
		case <-s.(teller).lost():
		case <-time.After(left()):
		}
	}
	report.UntilNs = monotonicNs()
	// It may be lost.
	_ = release()
	return report
}

func parse(words []string) arguments {
	args := arguments{}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		args[key] = value
	}
	return args
}

func round(s system, args arguments) any {
	switch args["workload"] {
	case "cycle":
		concurrency, count := int(args.number("concurrency")), int64(args.number("count"))
		names := 0
		if args["names"] != "" {
			names = int(args.number("names"))
		}
		return cycle(s, args["name"], concurrency, names, count, args.number("seconds"))
	case "contend":
		return contend(s, args)
	case "believe":
		return believe(s, args)
	}
	fail(fmt.Errorf("there is no workload %q", args["workload"]))
	return nil
}

func main() {
	args := parse(os.Args[1:])
	var addresses []string
	for _, url := range strings.Split(args["nodes"], ",") {
		_, address, isURL := strings.Cut(url, "://")
		if !isURL {
			// One more member of the same cluster.
			address = url
		}
		addresses = append(addresses, address)
	}
	lasts := ttl
	if args["ttl_ms"] != "" {
		lasts = time.Duration(args.number("ttl_ms")) * time.Millisecond
	}
	var s system
	switch args["system"] {
	case "redsync":
		s = newRedsync(addresses)
	case "rueidislock":
		s = newRueidislock(addresses)
	case "etcd-mutex":
		s = newEtcd(addresses, lasts)
	default:
		fail(fmt.Errorf("there is no system %q", args["system"]))
	}
	if first := cycle(s, fmt.Sprintf("bench/ready/%d", os.Getpid()), 1, 0, 1, 60); first.Error != nil {
		fail(fmt.Errorf("the first lock: %s", *first.Error))
	}
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		line, err := json.Marshal(round(s, parse(strings.Fields(input.Text()))))
		if err != nil {
			fail(err)
		}
		fmt.Println(string(line))
	}
}
