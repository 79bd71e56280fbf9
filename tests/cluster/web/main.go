// Web serves a folder, or fetches a URL several times, each over a connection of its own.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	switch os.Args[1] {
	case "serve": // serve ADDRESS FOLDER TEXT: TEXT becomes the folder's index
		if err := os.WriteFile(os.Args[3]+"/index.html", []byte(os.Args[4]+"\n"), 0o644); err != nil {
			log.Fatal(err)
		}
		fmt.Println("serving", os.Args[4])
		log.Fatal(http.ListenAndServe(os.Args[2], http.FileServer(http.Dir(os.Args[3]))))
	case "get": // get TIMES URL
		times, err := strconv.Atoi(os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for range times {
			answer, err := client.Get(os.Args[3])
			if err != nil {
				log.Fatal(err)
			}
			if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
				log.Fatal(err)
			}
			answer.Body.Close()
		}
	}
}
