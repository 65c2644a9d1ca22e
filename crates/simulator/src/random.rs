//! Random numbers that are the same for ever.
//!
//! Own code, so that a seed means the same with every version of every dependency: xoshiro256**,
//! seeded by splitmix64.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random([u64; 4]);

impl Random {
    /// The stream with this seed, and a number that tells it from others of that seed.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mix = seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03);
        Self([(); 4].map(|()| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = mix;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Below `end`, or zero if that is zero. All are as likely, but for one in billions.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// From `-most` to `most`.
    pub(crate) fn around_zero(&mut self, most: i64) -> i64 {
        self.below(2 * most.unsigned_abs() + 1) as i64 - most
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of them; none only if there are none.
    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        among.get(self.below(among.len() as u64) as usize).copied()
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut random = Random::new(7, 1);
        let first = [random.next(), random.next(), random.next()];
        let mut again = Random::new(7, 1);
        assert_eq!(first, [again.next(), again.next(), again.next()]);
        // By another implementation of xoshiro256** and splitmix64.
        let expected = [0x4173_5e38_6e83_315a, 0xb654_9e03_5b28_aa96, 0xcad9_afa4_9d11_06c0];
        assert_eq!(first, expected);
        assert_ne!(first[0], Random::new(7, 2).next());
        assert_ne!(first[0], Random::new(8, 1).next());
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut random = Random::new(1, 1);
        let numbers: Vec<_> = (0..200).map(|_| random.between(3, 5)).collect();
        assert!(
            (3..=5).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| (3..=5).contains(n))
        );
        assert!((0..200).all(|_| (-2..=2).contains(&random.around_zero(2))));
        assert_eq!((random.below(0), random.pick::<u8>(&[])), (0, None));
    }
}
