//! PostgreSQL's `hashtext` and `hashtextextended(_, 0)`, computed in Rust.
//!
//! PostgreSQL's variant of Bob Jenkins' lookup3, as little-endian servers compute it, unchanged
//! from release 12 to 18:
//! <https://github.com/postgres/postgres/blob/REL_18_STABLE/src/common/hashfn.c>,
//! <https://burtleburtle.net/bob/c/lookup3.c>. PostgreSQL does not promise to keep it, so tests
//! compare this file with numbers computed by servers.

/// The last two words of the state: `hashtext` is the second, `hashtextextended(_, 0)` both, the
/// first one high.
pub(super) fn lookup3(bytes: &[u8]) -> (u32, u32) {
    // The length is taken modulo 2^32, as PostgreSQL does; its texts are shorter.
    let length = bytes.len().to_le_bytes();
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    let start = 0x9e37_79b9_u32.wrapping_add(length).wrapping_add(3_923_095);
    let mut state = [start; 3];
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        add(&mut state, block, 0);
        mix(&mut state);
    }
    let rest = blocks.remainder();
    let (words, last) = rest.split_at(rest.len().min(8));
    add(&mut state, words, 0);
    // The lowest byte of the last word belongs to the length.
    add(&mut state, last, 9);
    mix_last(&mut state);
    (state[1], state[2])
}

/// Adds bytes to the words of the state, little-endian, from byte `at` of the state on.
fn add(state: &mut [u32; 3], bytes: &[u8], at: usize) {
    for (i, &byte) in (at..).zip(bytes) {
        state[i / 4] = state[i / 4].wrapping_add(u32::from(byte) << (i % 4 * 8));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    step(a, c, b, 4);
    step(b, a, c, 6);
    step(c, b, a, 8);
    step(a, c, b, 16);
    step(b, a, c, 19);
    step(c, b, a, 4);
}

fn step(x: &mut u32, y: &mut u32, z: &mut u32, bits: u32) {
    *x = x.wrapping_sub(*y) ^ y.rotate_left(bits);
    *y = y.wrapping_add(*z);
}

fn mix_last([a, b, c]: &mut [u32; 3]) {
    fold(c, *b, 14);
    fold(a, *c, 11);
    fold(b, *a, 25);
    fold(c, *b, 16);
    fold(a, *c, 4);
    fold(b, *a, 14);
    fold(c, *b, 24);
}

fn fold(x: &mut u32, y: u32, bits: u32) {
    *x = (*x ^ y).wrapping_sub(y.rotate_left(bits));
}
