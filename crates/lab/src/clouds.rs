//! Round-trip times between regions of a public cloud.

/// Where [`AZURE`] comes from.
pub const AZURE_SOURCE: &str = "Microsoft, \"Azure network round-trip latency statistics\", the median (P50) over the 30 days \
     until 9 April 2024, learn.microsoft.com/azure/networking/azure-network-latency; where the two directions differ by a \
     millisecond or few, the larger. The page says nothing of distances inside a region: 0.2 ms stands there, as in the \
     papers";

/// Medians between thirteen regions of Azure, in ms. See [`AZURE_SOURCE`].
pub const AZURE: &str = "\
eastus,centralus,westus2,canadacentral,brazilsouth,northeurope,westeurope,uksouth,japaneast,southeastasia,australiaeast,centralindia,koreacentral
0.2,32,67,22,118,70,84,78,158,227,204,210,184
32,0.2,39,26,149,96,109,98,137,200,177,240,161
67,39,0.2,67,184,133,145,139,100,163,161,212,124
22,26,67,0.2,132,86,98,92,158,222,199,222,182
118,149,184,132,0.2,171,186,180,281,343,311,311,303
70,96,133,86,171,0.2,20,13,234,166,252,145,231
84,109,145,98,186,20,0.2,11,226,159,259,139,224
78,98,139,92,180,13,11,0.2,226,157,258,134,222
158,137,100,158,281,234,226,226,0.2,72,103,121,33
227,200,163,222,343,166,159,157,72,0.2,90,54,70
204,177,161,199,311,252,259,258,103,90,0.2,140,131
210,240,212,222,311,145,139,134,121,54,140,0.2,119
184,161,124,182,303,231,224,222,33,70,131,119,0.2
";

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_protocol::latency::RttMatrix;

    #[test]
    fn the_table_is_whole_and_symmetric() {
        let azure = RttMatrix::from_csv(AZURE).unwrap();
        assert_eq!(azure.regions(), 13);
    }

    /// Two regions that lie far apart cannot be nearer than over any third one by more than routing explains.
    #[test]
    fn no_entry_stands_in_the_wrong_cell() {
        use meridian_protocol::topology::Region;
        let azure = RttMatrix::from_csv(AZURE).unwrap();
        let all = || (0..azure.regions()).map(Region);
        for (a, b, c) in all().flat_map(|a| all().flat_map(move |b| all().map(move |c| (a, b, c)))) {
            let (direct, around) = (azure.rtt(a, b), azure.rtt(a, c) + azure.rtt(c, b));
            let names = azure.names();
            assert!(
                direct <= around + around / 5,
                "{} to {} takes {direct}, by {} {around}",
                names[a.index()],
                names[b.index()],
                names[c.index()]
            );
        }
    }
}
