//! The derivations: how a rendered key becomes a number.
//!
//! Every derivation is fixed forever: a program of another release, or in another language, must
//! lock the same number. A golden test compares them with the numbers in
//! `tests/it/key-vectors.tsv`, which servers and other code computed.

use crate::words::words;
use md5::Md5;
use sha2::{Digest, Sha256};

mod hashtext;

/// The function that turns a rendered key into a number.
///
/// The default is SHA-256; the others are for keys that are shared with other code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Derivation {
    /// The first 8 bytes, big-endian, of the SHA-256 of the UTF-8 text (FIPS 180-4,
    /// <https://doi.org/10.6028/NIST.FIPS.180-4>).
    #[default]
    Sha256,
    /// The first 8 bytes, big-endian, of the MD5 of the UTF-8 text
    /// (<https://www.rfc-editor.org/rfc/rfc1321>).
    Md5,
    /// FNV-1a of 32 bits over the UTF-16 code units, as JavaScript that reads `charCodeAt` computes
    /// it (<http://www.isthe.com/chongo/tech/comp/fnv/>), as a signed integer.
    Fnv1a32,
    /// FNV-1a of 64 bits over the bytes of the UTF-8 text
    /// (<http://www.isthe.com/chongo/tech/comp/fnv/>), as a signed integer.
    Fnv1a64,
    /// PostgreSQL's `hashtext(text)`, in a database with the encoding UTF8.
    Hashtext,
    /// PostgreSQL's `hashtextextended(text, 0)`, in a database with the encoding UTF8.
    Hashtextextended,
}

words! {
    Derivation:
    Sha256 = "sha256",
    Md5 = "md5",
    Fnv1a32 = "fnv1a32",
    Fnv1a64 = "fnv1a64",
    Hashtext = "hashtext",
    Hashtextextended = "hashtextextended",
}

impl Derivation {
    /// Returns the number of a whole rendered key; use a [`Hasher`] to avoid allocating the text.
    #[must_use]
    pub fn key(self, rendered: &str) -> i64 {
        let mut hasher = Hasher::new(self);
        hasher.write(rendered);
        hasher.finish()
    }

    /// Returns the number of a rendered text as the second half of a pair; for [32
    /// bits](Self::bits) that is the number itself.
    #[must_use]
    pub fn half(self, rendered: &str) -> i32 {
        let mut hasher = Hasher::new(self);
        hasher.write(rendered);
        hasher.finish_half()
    }

    /// Returns the number of bits of a key; 32 bits are sign-extended to a `bigint`.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Sha256 | Self::Md5 | Self::Fnv1a64 | Self::Hashtextextended => 64,
            Self::Fnv1a32 | Self::Hashtext => 32,
        }
    }

    /// Estimates the probability that at least two of this many different keys have the same
    /// number.
    ///
    /// `1 - e^(-n(n-1) / 2^(bits+1))`, the birthday problem's usual approximation
    /// (<https://en.wikipedia.org/wiki/Birthday_problem#Approximations>). With 32 bits 1,000 keys
    /// have a chance of 1 in 8,600, and 77,000 keys of one in two; with 64 bits a million keys have
    /// 1 in 37 million.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        reason = "an estimate needs no more than the leading digits of the count"
    )]
    pub fn collision_odds(self, keys: u64) -> f64 {
        let pairs = keys as f64 * keys.saturating_sub(1) as f64 / 2.0;
        let numbers = f64::from(self.bits()).exp2();
        -(-pairs / numbers).exp_m1()
    }
}

/// Derives the number of a key that is rendered piece by piece.
///
/// Does not allocate, except for hashtext and hashtextextended, which hash the text's length first
/// and so must store the text.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Derivation, Hasher};
///
/// let mut hasher = Hasher::new(Derivation::Sha256);
/// for piece in ["booking", ":", "42"] {
///     hasher.write(piece);
/// }
/// assert_eq!(hasher.finish(), Derivation::Sha256.key("booking:42"));
/// ```
#[derive(Clone, Debug)]
pub struct Hasher(Hash);

#[derive(Clone, Debug)]
enum Hash {
    Sha256(Sha256),
    Md5(Md5),
    Fnv1a32(u32),
    Fnv1a64(u64),
    Hashtext(String),
    Hashtextextended(String),
}

impl Hasher {
    /// Starts an empty key.
    #[must_use]
    pub fn new(derivation: Derivation) -> Self {
        Self(match derivation {
            Derivation::Sha256 => Hash::Sha256(Sha256::new()),
            Derivation::Md5 => Hash::Md5(Md5::new()),
            Derivation::Fnv1a32 => Hash::Fnv1a32(2_166_136_261),
            Derivation::Fnv1a64 => Hash::Fnv1a64(0xcbf2_9ce4_8422_2325),
            Derivation::Hashtext => Hash::Hashtext(String::new()),
            Derivation::Hashtextextended => Hash::Hashtextextended(String::new()),
        })
    }

    /// Adds a piece of the key. The boundaries between pieces do not affect the number.
    pub fn write(&mut self, piece: &str) {
        match &mut self.0 {
            Hash::Sha256(digest) => digest.update(piece),
            Hash::Md5(digest) => digest.update(piece),
            Hash::Fnv1a32(hash) => {
                for unit in piece.encode_utf16() {
                    *hash = (*hash ^ u32::from(unit)).wrapping_mul(16_777_619);
                }
            }
            Hash::Fnv1a64(hash) => {
                for byte in piece.bytes() {
                    *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
            Hash::Hashtext(text) | Hash::Hashtextextended(text) => text.push_str(piece),
        }
    }

    /// Returns the number of the key.
    #[must_use]
    pub fn finish(self) -> i64 {
        match self.0 {
            Hash::Sha256(digest) => leading(&digest.finalize()),
            Hash::Md5(digest) => leading(&digest.finalize()),
            Hash::Fnv1a32(hash) => i64::from(hash.cast_signed()),
            Hash::Fnv1a64(hash) => hash.cast_signed(),
            Hash::Hashtext(text) => i64::from(hashtext::lookup3(text.as_bytes()).1.cast_signed()),
            Hash::Hashtextextended(text) => {
                let (high, low) = hashtext::lookup3(text.as_bytes());
                (u64::from(high) << 32 | u64::from(low)).cast_signed()
            }
        }
    }

    /// Returns the number as the second half of a pair: its lower 32 bits. The macros refuse a
    /// derivation with more bits.
    #[must_use]
    pub fn finish_half(self) -> i32 {
        let [a, b, c, d, ..] = self.finish().to_le_bytes();
        i32::from_le_bytes([a, b, c, d])
    }
}

/// The first 8 bytes of a digest, big-endian.
pub(crate) fn leading(digest: &[u8]) -> i64 {
    let fold = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
    digest.iter().take(8).fold(0, fold).cast_signed()
}

/// Returns the whole SHA-256 of a text in UTF-8, by which a lease is found.
///
/// # Examples
///
/// ```
/// use advisory_pattern::{Derivation, sha256};
///
/// let hash = sha256("booking:42");
/// // The number of an advisory lock is the first eight bytes.
/// assert_eq!(hash[..8], Derivation::Sha256.key("booking:42").to_be_bytes());
/// ```
#[must_use]
pub fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}
