"""Started by `test_ray.py`: a Ray cluster of two nodes with a CPU each, on this machine.

Prints the cluster's address. After a line on standard input, the second node is killed, and "killed" is printed. The
end of standard input ends the cluster.

python -m tests.engines.cluster
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    """Start the cluster, and do what is asked for."""
    memory = 80 << 20
    arguments = {"num_cpus": 1, "object_store_memory": memory, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    second = cluster.add_node(num_cpus=1, object_store_memory=memory)
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        cluster.remove_node(second, allow_graceful=False)
        print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
