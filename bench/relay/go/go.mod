module penstock.dev/bench/relay

go 1.26
