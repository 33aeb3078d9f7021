//! Writes numbers into a key without an allocation and without `core::fmt`, which costs more than
//! hashing the text.

/// A short ASCII text on the stack; the longest is that of `i128::MIN`, 40 bytes.
pub(crate) struct Digits {
    bytes: [u8; 40],
    len: usize,
}

const TABLE: &[u8; 16] = b"0123456789abcdef";
/// The highest power of ten in a `u64`.
const TEN_TO_19: u128 = 10_u128.pow(19);

impl Digits {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [b'0'; 40],
            len: 0,
        }
    }

    pub(crate) const fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Appends the number, with zeros in front up to `width` digits.
    pub(crate) fn number(&mut self, mut value: u64, width: usize) {
        let mut digits = 1;
        let mut power: u64 = 10;
        while digits < 20 && value >= power {
            digits += 1;
            power = power.saturating_mul(10);
        }
        let end = self.len + digits.max(width);
        for byte in self.bytes[self.len..end].iter_mut().rev() {
            *byte = TABLE[(value % 10) as usize];
            value /= 10;
        }
        self.len = end;
    }

    pub(crate) fn wide(&mut self, value: u128) {
        if let Ok(value) = u64::try_from(value) {
            self.number(value, 1);
        } else {
            self.wide(value / TEN_TO_19);
            self.number((value % TEN_TO_19) as u64, 19);
        }
    }

    #[cfg(feature = "uuid")]
    pub(crate) fn hex(&mut self, bytes: &[u8]) {
        let end = self.len + 2 * bytes.len();
        let pairs = self.bytes[self.len..end].chunks_exact_mut(2);
        for (pair, byte) in pairs.zip(bytes) {
            pair[0] = TABLE[usize::from(byte >> 4)];
            pair[1] = TABLE[usize::from(byte & 15)];
        }
        self.len = end;
    }

    pub(crate) fn as_str(&self) -> &str {
        // Always ASCII.
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}
