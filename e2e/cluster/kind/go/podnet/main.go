// podnet keeps one route per other node: that node's pod range, by way of that node's address.
//
// With the bridge plugin inside each node this is the whole pod network of a kind cluster whose nodes share a link.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	credentials = "/var/run/secrets/kubernetes.io/serviceaccount/"
	interval    = 5 * time.Second
	retry       = time.Second
)

type node struct {
	Metadata struct{ Name string }
	Spec     struct{ PodCIDR string }
	Status   struct {
		Addresses []struct{ Type, Address string }
	}
}

func main() {
	// Process 1 of a container ignores a signal it has no handler for, and the pod would wait out its grace period.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)

	client, err := apiClient()
	if err != nil {
		log.Fatal(err)
	}
	for {
		pause := interval
		if err := syncRoutes(client, os.Getenv("NODE")); err != nil {
			log.Print(err)
			pause = retry
		}
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
	}
}

func apiClient() (*http.Client, error) {
	authority, err := os.ReadFile(credentials + "ca.crt")
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no certificate in %sca.crt", credentials)
	}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}, nil
}

func syncRoutes(client *http.Client, own string) error {
	nodes, err := listNodes(client)
	if err != nil {
		return err
	}
	for _, other := range nodes {
		_, pods, err := net.ParseCIDR(other.Spec.PodCIDR)
		if other.Metadata.Name == own || err != nil { // a new node has no range yet
			continue
		}
		for _, address := range other.Status.Addresses {
			gateway := net.ParseIP(address.Address)
			if address.Type != "InternalIP" || gateway.To4() == nil {
				continue
			}
			if err := netlink.RouteReplace(&netlink.Route{Dst: pods, Gw: gateway}); err != nil {
				return fmt.Errorf("route to %s by %s: %w", pods, gateway, err)
			}
			break
		}
	}
	return nil
}

func listNodes(client *http.Client) ([]node, error) {
	token, err := os.ReadFile(credentials + "token") // read every time: the kubelet renews it
	if err != nil {
		return nil, err
	}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+server+"/api/v1/nodes", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list nodes: %s", response.Status)
	}
	var list struct{ Items []node }
	err = json.NewDecoder(response.Body).Decode(&list)
	return list.Items, err
}
