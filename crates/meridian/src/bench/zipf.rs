//! YCSB's scrambled Zipfian choice of keys, with YCSB's constants, so that skews can be compared with published ones.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// YCSB draws ranks from this many items and hashes them onto the keys there are, so that the skew does not
/// depend on the number of keys and hot keys do not lie side by side.
const ITEMS: f64 = 1e10;

/// A scrambled Zipfian distribution over `keys` keys.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    keys: u64,
    theta: f64,
    zeta_items: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// A distribution of skew `theta`, strictly between 0 and 1.
    pub(super) fn new(keys: u64, theta: f64) -> Self {
        let zeta_items = zeta(theta);
        let zeta_two = 1.0 + 0.5_f64.powf(theta);
        Self {
            keys,
            theta,
            zeta_items,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / ITEMS).powf(1.0 - theta)) / (1.0 - zeta_two / zeta_items),
        }
    }

    /// Draws a key, in `0..keys`.
    pub(super) fn draw(&self, rng: &mut Pcg64Mcg) -> u64 {
        fnv(self.rank(rng.random())) % self.keys
    }

    /// The rank at probability `u`: 0 is the most frequent (Gray et al., SIGMOD '94, as YCSB has it).
    fn rank(&self, u: f64) -> u64 {
        let uz = u * self.zeta_items;
        if uz < 1.0 {
            0
        } else if uz < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            (ITEMS * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
        }
    }
}

/// The sum of 1/i^theta over all items: the first terms one by one, the rest by Euler and Maclaurin.
fn zeta(theta: f64) -> f64 {
    const HEAD: u32 = 10_000;
    let term = |i: f64| i.powf(-theta);
    let head: f64 = (1..HEAD).map(|i| term(f64::from(i))).sum();
    let from = f64::from(HEAD);
    let integral = (ITEMS.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    head + integral + f64::midpoint(term(from), term(ITEMS)) + theta * term(from) / from / 12.0
}

/// YCSB's `fnvhash64`, sign dropped as there.
fn fnv(value: u64) -> u64 {
    let hash = value.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
    });
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn zeta_is_the_constant_that_ycsb_carries() {
        assert!((zeta(0.99) - 26.469_028_201_783_02).abs() < 1e-9, "{}", zeta(0.99));
    }

    #[test]
    fn frequencies_follow_the_definition() {
        let zipf = Zipf::new(1_000_000, 0.99);
        let mut rng = Pcg64Mcg::seed_from_u64(7);
        let draws = 200_000;
        let mut ranks = [0_u32; 4];
        for _ in 0..draws {
            if let Some(count) = ranks.get_mut(zipf.rank(rng.random()) as usize) {
                *count += 1;
            }
        }
        // The first two ranks are exact in the algorithm, the others approximate.
        for (rank, tolerance) in [(0, 0.03), (1, 0.05)] {
            let expected = f64::from(draws) / (f64::from(rank + 1).powf(0.99) * zipf.zeta_items);
            let seen = f64::from(ranks[rank as usize]);
            assert!((seen / expected - 1.0).abs() < tolerance, "rank {rank}: {seen}, expected {expected}");
        }
    }

    #[test]
    fn less_skew_spreads_more() {
        let hottest = |theta| {
            let zipf = Zipf::new(1_000, theta);
            let mut rng = Pcg64Mcg::seed_from_u64(1);
            let mut counts = vec![0_u32; 1_000];
            for _ in 0..100_000 {
                counts[zipf.draw(&mut rng) as usize] += 1;
            }
            counts.into_iter().max().unwrap()
        };
        assert!(hottest(0.5) < hottest(0.7) && hottest(0.7) < hottest(0.9) && hottest(0.9) < hottest(0.99));
    }
}
