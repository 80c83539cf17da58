//! Philox-4x32-10 (Salmon et al. 2011): random words by counter, so that every element has its own.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The word of element `index` in a stream: word `index % 4` of the block with counter (index / 4, stream) under key `seed`.
pub fn word(seed: u64, stream: u64, index: u64) -> u32 {
    block(seed, stream, index / 4)[(index % 4) as usize]
}

/// The words of a stream from element `start` on: those that [`word`] gives one by one.
pub fn words(seed: u64, stream: u64, start: u64) -> impl Iterator<Item = u32> {
    (start / 4..).flat_map(move |index| block(seed, stream, index)).skip((start % 4) as usize)
}

fn block(seed: u64, stream: u64, index: u64) -> [u32; 4] {
    let counter = [index as u32, (index >> 32) as u32, stream as u32, (stream >> 32) as u32];
    philox4x32(counter, [seed as u32, (seed >> 32) as u32])
}

/// One block of four words.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let a = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        let high = |x: u64| (x >> 32) as u32;
        counter = [high(b) ^ counter[1] ^ key[0], b as u32, high(a) ^ counter[3] ^ key[1], a as u32];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the Random123 library.
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([!0; 4], [!0; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox4x32(pi, [0xa409_3822, 0x299f_31d0]), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn streams_and_elements_differ() {
        assert_eq!(word(1, 2, 3), word(1, 2, 3));
        assert_ne!(word(1, 2, 3), word(1, 3, 3));
        assert_ne!(word(1, 2, 3), word(1, 2, 4));
        assert_ne!(word(1, 2, 3), word(2, 2, 3));
        for start in 0..6 {
            let one_by_one: Vec<u32> = (start..start + 9).map(|k| word(1, 2, k)).collect();
            assert_eq!(words(1, 2, start).take(9).collect::<Vec<_>>(), one_by_one);
        }
    }
}
