// Gpus is a device plugin that offers GPUs which do not exist: gpus COUNT, beside a kubelet.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	endpoint = "fake-gpus.sock"
	socket   = api.DevicePluginPath + endpoint
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	count int
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	var devices []*api.Device
	for number := range p.count {
		devices = append(devices, &api.Device{ID: fmt.Sprintf("GPU-%d", number), Health: api.Healthy})
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate tells a container of its GPUs as NVIDIA's plugin and runtime would.
func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, wanted := range request.ContainerRequests {
		given := &api.ContainerAllocateResponse{Envs: map[string]string{}}
		var numbers []string
		devices := slices.Sorted(slices.Values(wanted.DevicesIds))
		for number, device := range devices {
			numbers = append(numbers, strconv.Itoa(number))
			given.Devices = append(given.Devices, &api.DeviceSpec{
				ContainerPath: "/dev/nvidia" + strings.TrimPrefix(device, "GPU-"),
				HostPath:      "/dev/null",
				Permissions:   "rw",
			})
		}
		given.Envs["NVIDIA_VISIBLE_DEVICES"] = strings.Join(devices, ",")
		given.Envs["CUDA_VISIBLE_DEVICES"] = strings.Join(numbers, ",")
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

func serve(count int) (*grpc.Server, error) {
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{count: count})
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

func register() error {
	link, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer link.Close()
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: "nvidia.com/gpu"}
	_, err = api.NewRegistrationClient(link).Register(limited, request)
	return err
}

// offer serves and registers, and gives the kubelet's socket that it was registered at.
func offer(count int) (os.FileInfo, *grpc.Server, error) {
	known, err := os.Stat(api.KubeletSocket)
	if err != nil {
		return nil, nil, err
	}
	server, err := serve(count)
	if err != nil {
		return nil, nil, err
	}
	if err := register(); err != nil {
		server.Stop()
		return nil, nil, err
	}
	return known, server, nil
}

// A kubelet that starts removes every socket beside its own: then all is to be said again.
func forgotten(known os.FileInfo) bool {
	now, err := os.Stat(api.KubeletSocket)
	if err != nil {
		return true
	}
	_, err = os.Stat(socket)
	return err != nil || !os.SameFile(known, now)
}

func main() {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		known, server, err := offer(count)
		if err != nil {
			log.Print(err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for !forgotten(known) {
			time.Sleep(100 * time.Millisecond)
		}
		server.Stop()
	}
}
