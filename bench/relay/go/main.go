// Command relaybench is both ends of the relay bench: `relaybench backend` streams events as an engine does,
// `relaybench load` asks for streams on a schedule that no answer can slow down and checks every byte it gets.
//
// Both ends speak HTTP/1.1 on bare connections: net/http would cost more per event than the proxies under test.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail("say `relaybench backend` or `relaybench load`")
	}
	var err error
	switch command := os.Args[1]; command {
	case "backend":
		err = runBackend(os.Args[2:])
	case "load":
		err = runLoad(os.Args[2:])
	default:
		err = fmt.Errorf("unknown command %q: say backend or load", command)
	}
	if err != nil {
		fail(err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "relaybench:", message)
	os.Exit(1)
}
