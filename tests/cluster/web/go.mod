module penstock.dev/tests/web

go 1.26
