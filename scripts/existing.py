"""What scripts/search and scripts/redis share: proxies in front of given servers, and measurements of them."""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from processes import Processes

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
WORKERS = os.path.join(ROOT, "apps/workers/target/release/tailcut-workers")


class Bench(Processes):
    """Servers, what is put before them, and clients, all on loopback."""

    def begin(self):
        self.directory = tempfile.mkdtemp(prefix="tailcut-existing-")

    def __exit__(self, *error):
        super().__exit__(*error)
        shutil.rmtree(self.directory, ignore_errors=True)

    def run(self, command, ports=0):
        """Another program, which prints `listening ADDR` for each of its ports; it and their addresses."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=self.directory)
        self.processes.append(process)
        lines = [process.stdout.readline().split() for _ in range(ports)]
        if not all(line[:1] == ["listening"] for line in lines):
            raise OSError(f"{command[0]} does not start")
        return process, [line[1] for line in lines]

    def workers(self, count, *arguments):
        need(WORKERS, "cargo build --release --manifest-path apps/workers/Cargo.toml")
        return self.run([WORKERS, "--listen", "127.0.0.1:0", "--servers", str(count), *arguments], count)[1]

    def bridges(self, targets, scheme, app, *more):
        """A bridge before each of these servers, which holds at it no more than one request a worker."""
        return [self.listen("bridge", "--listen", "127.0.0.1:0", "--app", app, "--to", f"{scheme}://{target}", "--server-id",
                            str(index), "--spin-ns", "0", *more)[1][0] for index, target in enumerate(targets)]

    def router(self, servers, policy):
        # Probes of so many servers would take a share of two cores; none of them dies here.
        return self.listen("route", "--listen", "127.0.0.1:0", "--policy", policy, "--spin-ns", "0", "--probe-interval", "50ms",
                           "--silent-after", "500ms", "--hold", "10s", *[word for server in servers for word in ("--server", server)])

    def nginx(self, block, processes=1):
        """NGINX with a block of its configuration, where {port} stands for its port."""
        port = free_port()
        path = os.path.join(self.directory, f"nginx-{port}.conf")
        module = "/usr/lib/nginx/modules/ngx_stream_module.so"
        load = f"load_module {module};\n" if block.startswith("stream") and os.path.exists(module) else ""
        with open(path, "w") as file:
            file.write(f"{load}daemon off;\nmaster_process {'on' if processes > 1 else 'off'};\nworker_processes {processes};\n"
                       f"worker_rlimit_nofile 20000;\npid {path}.pid;\nerror_log {path}.log;\nevents {{ worker_connections 8000; }}\n"
                       + block.replace("{port}", str(port)).replace("{directory}", self.directory))
        process = self.run(["nginx", "-p", self.directory, "-c", path])[0]
        wait_for(port)
        return process, port

    def haproxy(self, listen):
        """HAProxy, one thread, with the lines of a `listen` section."""
        port = free_port()
        path = os.path.join(self.directory, f"haproxy-{port}.cfg")
        with open(path, "w") as file:
            file.write("global\n  nbthread 1\n  maxconn 8000\ndefaults\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n"
                       f"  timeout queue 30s\nlisten servers\n  bind 127.0.0.1:{port}\n" + listen)
        process = self.run(["haproxy", "-f", path])[0]
        wait_for(port)
        return process, port

    def measure(self, *arguments, seconds):
        """The result of `tailcut measure`, which is bounded in time."""
        command = [self.binary, "measure", *arguments, *([] if "--busy-poll" in arguments else ["--spin-ns", "0"]), "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
        if not done.stdout:
            raise OSError((done.stderr.strip().splitlines() or ["no result"])[-1])
        return json.loads(done.stdout)


def simulate(binary, *arguments):
    done = subprocess.run([binary, "sim", "queue", *arguments, "--json", "-"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(1000):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.01)
    raise OSError(f"nothing listens at port {port}")


def need(path, how):
    if not os.path.exists(path):
        sys.exit(f"{path} is not there: {how}")


def need_programs(*names):
    for name in names:
        if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            sys.exit(f"{name} is missing: scripts/setup search, or redis")


def environment(binary):
    def said(*command):
        done = subprocess.run(command, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip().splitlines()[0]

    with open("/proc/cpuinfo") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    return {
        "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "tailcut": said(binary, "--version"),
        "nginx": said("nginx", "-v"), "haproxy": said("haproxy", "-v"),
        "load_average_at_the_start": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d"),
    }


def write_results(directory, results, page):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "results.json"), "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    with open(os.path.join(directory, "index.html"), "w") as file:
        file.write(page)


def check_page(directory, render):
    """Whether the page is what the results beside it give."""
    with open(os.path.join(directory, "results.json")) as file:
        results = json.load(file)
    with open(os.path.join(directory, "index.html")) as file:
        if file.read() != render(results):
            sys.exit(f"{directory}/index.html is not what its results.json gives")
    print(f"{os.path.basename(directory)}: the page is what its results give")
