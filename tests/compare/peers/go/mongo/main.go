// The official Go driver: see ../../README.md.
package main

import (
	"context"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"poolhouse.invalid/peers/peer"
)

func main() {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	admin := client.Database("admin")
	peer.Run(func() error {
		var reply bson.M
		return admin.RunCommand(context.Background(), bson.D{{Key: "ping", Value: 1}}).Decode(&reply)
	})
}
