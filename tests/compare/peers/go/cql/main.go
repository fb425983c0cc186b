// gocql: see ../../README.md.
package main

import (
	"log"
	"os"
	"strconv"

	"github.com/gocql/gocql"
	"poolhouse.invalid/peers/peer"
)

func main() {
	cluster := gocql.NewCluster(os.Args[1])
	cluster.NumConns = 1
	if len(os.Args) > 2 {
		count, err := strconv.Atoi(os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		cluster.NumConns = count
	}
	if len(os.Args) > 3 {
		cluster.SslOpts = &gocql.SslOptions{CaPath: os.Args[3], EnableHostVerification: true}
	}
	session, err := cluster.CreateSession()
	if err != nil {
		log.Fatal(err)
	}
	// gocql prepares each statement.
	peer.Run(func() error {
		var version string
		return session.Query("SELECT release_version FROM system.local").Scan(&version)
	})
}
