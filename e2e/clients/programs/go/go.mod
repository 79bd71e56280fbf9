module penstock.dev/e2e/clients

go 1.26
