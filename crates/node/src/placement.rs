//! Which node holds which machine.

use crate::config::Config;
use meridian_protocol::topology::{Address, Region};

/// A node's place in the configuration, counted from 0.
pub(crate) type NodeIndex = usize;

/// Where machines live: partition p of any keyspace is, in each region, on the region's node p modulo the
/// number of its nodes; a client machine on the node that its name says.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// By region, its nodes in the order of the configuration.
    regions: Vec<Vec<NodeIndex>>,
    region_of: Vec<Region>,
}

impl Placement {
    pub(crate) fn new(config: &Config) -> Self {
        let mut regions = vec![Vec::new(); config.regions.len()];
        for (index, node) in config.nodes.iter().enumerate() {
            regions[node.region.index()].push(index);
        }
        Self { regions, region_of: config.nodes.iter().map(|node| node.region).collect() }
    }

    /// How many regions there are.
    pub(crate) fn regions(&self) -> u8 {
        self.regions.len() as u8
    }

    /// The region of a node.
    pub(crate) fn region_of(&self, node: NodeIndex) -> Region {
        self.region_of[node]
    }

    /// The node that holds `partition` in `region`, which must exist.
    pub(crate) fn holder(&self, partition: u16, region: Region) -> NodeIndex {
        let nodes = &self.regions[region.index()];
        nodes[usize::from(partition) % nodes.len()]
    }

    /// The node on which a machine lives; `None` if there is no such region or node.
    pub(crate) fn node_of(&self, address: Address) -> Option<NodeIndex> {
        match address {
            Address::Replica(replica) => {
                let nodes = self.regions.get(replica.region.index())?;
                Some(nodes[usize::from(replica.partition) % nodes.len()])
            }
            Address::Client(_, client) => {
                let index = usize::from(client.node()).checked_sub(1)?;
                (index < self.region_of.len()).then_some(index)
            }
        }
    }
}
