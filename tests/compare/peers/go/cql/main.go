// gocql: see ../../README.md.
package main

import (
	"log"
	"os"

	"github.com/gocql/gocql"
	"poolhouse.invalid/peers/peer"
)

func main() {
	cluster := gocql.NewCluster(os.Args[1])
	// As the others.
	cluster.NumConns = 1
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
