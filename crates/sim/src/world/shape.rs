//! Where replicas live.

use super::KEYSPACE;
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::topology::{Group, Region, ReplicaId};

/// Which nodes there are and how far they lie from each other. Partition `p` lives on node `p % nodes_per_region`
/// of each region; nodes are counted region by region.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The regions.
    pub rtt: RttMatrix,
    /// Nodes in each region.
    pub nodes_per_region: usize,
    /// Slices of the keyspace.
    pub partitions: u16,
}

impl Shape {
    /// How many nodes there are in all.
    pub fn nodes(&self) -> usize {
        usize::from(self.rtt.regions()) * self.nodes_per_region
    }

    /// The region of a node.
    pub fn region_of(&self, node: usize) -> Region {
        Region((node / self.nodes_per_region) as u8)
    }

    /// The node on which a replica lives.
    pub fn node_of(&self, id: ReplicaId) -> usize {
        id.region.index() * self.nodes_per_region + usize::from(id.partition) % self.nodes_per_region
    }

    /// The keyspace as machines see it.
    pub fn group(&self) -> Group {
        Group { keyspace: KEYSPACE, partitions: self.partitions, regions: self.rtt.regions() }
    }

    /// The partitions that live on a node.
    pub(super) fn partitions_on(&self, node: usize) -> impl Iterator<Item = u16> + use<> {
        let first = node % self.nodes_per_region;
        (first..usize::from(self.partitions)).step_by(self.nodes_per_region).map(|partition| partition as u16)
    }

    pub(super) fn index_on_node(&self, id: ReplicaId) -> usize {
        usize::from(id.partition) / self.nodes_per_region
    }
}
