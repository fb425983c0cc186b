// Package peer runs the rounds of a client: see ../../README.md.
package peer

import (
	"fmt"
	"log"
	"sort"
	"sync"
	"time"
)

// Run sends one command, and then those of each round.
func Run(command func() error) {
	if err := command(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	for {
		var tasks, milliseconds int
		if count, _ := fmt.Scan(&tasks, &milliseconds); count < 2 {
			return
		}
		round(command, tasks, time.Duration(milliseconds)*time.Millisecond)
	}
}

func round(command func() error, tasks int, duration time.Duration) {
	begun := time.Now()
	waits := make([][]time.Duration, tasks)
	var running sync.WaitGroup
	for task := range tasks {
		running.Add(1)
		go func() {
			defer running.Done()
			for start := time.Now(); start.Sub(begun) < duration; {
				if err := command(); err != nil {
					log.Fatal(err)
				}
				end := time.Now()
				waits[task] = append(waits[task], end.Sub(start))
				start = end
			}
		}()
	}
	running.Wait()
	seconds := time.Since(begun).Seconds()
	count := 0
	for _, some := range waits {
		count += len(some)
	}
	fmt.Println(count, seconds)
	var all []time.Duration
	for _, some := range waits {
		all = append(all, some...)
	}
	sort.Slice(all, func(one, other int) bool { return all[one] < all[other] })
	us := func(share float64) float64 { return float64(all[int(share*float64(len(all)-1))].Nanoseconds()) / 1e3 }
	fmt.Println(us(0.5), us(0.99))
}
