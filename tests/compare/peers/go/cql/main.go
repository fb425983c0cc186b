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
	// As the others: one connection, and the consistency that one node can have.
	cluster.NumConns = 1
	cluster.Consistency = gocql.One
	session, err := cluster.CreateSession()
	if err != nil {
		log.Fatal(err)
	}
	peer.Run(func() error {
		var version string
		return session.Query("SELECT release_version FROM system.local").Scan(&version)
	})
}
