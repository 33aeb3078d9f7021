//! The record of a lock site: written into a program, and read from its bytes.
//!
//! The macro puts a record for each site into a separate section; the program's tests and the
//! command read the records without running anything. A record is flat text between two control
//! characters, so it needs no relocation and survives any linker.

mod claim_record;
mod format;

use crate::derivation::Derivation;
use crate::pattern::key_space::KeySpace;
use crate::pattern::locked_key::HALF;
use crate::pattern::permit::Permits;
pub use claim_record::{CLAIM_COLUMNS, CLAIM_PARTS, CLAIM_START, ClaimRecord};
use format::{Field, MAGIC, decode, encode, records_of};
pub use format::{MODULE_PATH, RECORD_VERSION, RecordError, decode_key};

/// A lock site as a program contains it.
///
/// # Examples
///
/// ```
/// use advisory_pattern::Record;
///
/// let record = Record {
///     function: "book".into(),
///     keys: vec!["pattern <room: int>:<day: date>".into()],
///     derivation: "sha256".into(),
///     ..Record::default()
/// };
/// // As a program contains it, among other bytes.
/// let program = format!("…{}…", record.encode());
/// assert_eq!(Record::find_all(program.as_bytes())?, [record]);
/// # Ok::<(), advisory_pattern::RecordError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// `fn`, `struct` for a declared lock, or `macro` for `lock_key!`.
    pub kind: String,
    /// The lock's name, if the site sets it.
    pub name: Option<String>,
    /// The part of the program that it belongs to, if the site sets it.
    pub component: Option<String>,
    /// The first line with text of the doc comment, at most 500 characters of it.
    pub purpose: Option<String>,
    /// The keys as written: patterns, or expressions.
    pub written: Vec<String>,
    /// The keys as they are compared, by [`encode_key`](crate::encode_key).
    pub keys: Vec<String>,
    /// The values of placeholders that the site computes, each with its expression:
    /// `with(day = req.at.date())`.
    pub with: Vec<(String, String)>,
    /// How the rendered key becomes a number; `sha256` for a lease, which keeps the text.
    pub derivation: String,
    /// `xact`, `session`, `lease`; `none` for a declared key, because its sites have the scope.
    pub scope: String,
    /// `exclusive` or `shared`.
    pub mode: String,
    /// The wait, if the site sets it.
    pub wait: Option<String>,
    /// The interval of its tries while it waits, if the site sets it.
    pub poll: Option<String>,
    /// The number of holders at a time, if the site sets it.
    pub permits: Option<Permits>,
    /// The time limit of the body, if the site sets it.
    pub max_hold: Option<String>,
    /// The isolation level, if the site sets it.
    pub isolation: Option<String>,
    /// The duration of a grant of the lease, if the site sets it.
    pub ttl: Option<String>,
    /// The interval of the lease's renewals, if the site sets it.
    pub renew: Option<String>,
    /// The time that the lease's key stays done after `Ok`, if the site sets it.
    pub keep: Option<String>,
    /// The other locks' names that this one may overlap, each with the reason.
    pub allow_overlap: Vec<(String, String)>,
    /// The tables that must only be written under the lock, if the site names some.
    pub guards: Vec<String>,
    /// Why the pattern may be ambiguous.
    pub allow_ambiguous: Option<String>,
    /// Why the lock is needed although a constraint of a guarded table can say a rule on its
    /// columns.
    pub allow_redundant: Option<String>,
    /// The module's path.
    pub module: String,
    /// The function, or the declared type.
    pub function: String,
    /// The source file, relative to the crate's manifest, or `$OUT_DIR/…` for what a build script
    /// wrote.
    pub file: String,
    /// Its line.
    pub line: u32,
    /// The crate.
    pub krate: String,
    /// The crate's version.
    pub version: String,
}

impl Record {
    /// Writes the record. Control characters in values become spaces.
    #[must_use]
    pub fn encode(&self) -> String {
        encode(MAGIC, self.format_version(), self.clone().fields())
    }

    /// The lowest version of the format that has what the record says, so that an older reader
    /// refuses only what it would misread.
    fn format_version(&self) -> u32 {
        let has_half = self.keys.iter().any(|key| key.starts_with(HALF));
        let of_derivation = Derivation::from_name(&self.derivation).map_or(1, first_version);
        of_derivation.max(if has_half { 2 } else { 1 })
    }

    fn fields(&mut self) -> [(&'static str, Field<'_>); 28] {
        [
            ("kind", Field::Text(&mut self.kind)),
            ("written", Field::Joined(&mut self.written)),
            ("keys", Field::Joined(&mut self.keys)),
            ("derivation", Field::Text(&mut self.derivation)),
            ("scope", Field::Text(&mut self.scope)),
            ("mode", Field::Text(&mut self.mode)),
            ("module", Field::Module(&mut self.module)),
            ("function", Field::Text(&mut self.function)),
            ("file", Field::Text(&mut self.file)),
            ("line", Field::Number(&mut self.line)),
            ("crate", Field::Text(&mut self.krate)),
            ("version", Field::Text(&mut self.version)),
            ("name", Field::Optional(&mut self.name)),
            ("component", Field::Optional(&mut self.component)),
            ("purpose", Field::Optional(&mut self.purpose)),
            ("wait", Field::Optional(&mut self.wait)),
            ("poll", Field::Optional(&mut self.poll)),
            ("max_hold", Field::Optional(&mut self.max_hold)),
            ("isolation", Field::Optional(&mut self.isolation)),
            ("ttl", Field::Optional(&mut self.ttl)),
            ("renew", Field::Optional(&mut self.renew)),
            ("keep", Field::Optional(&mut self.keep)),
            (
                "allow_ambiguous",
                Field::Optional(&mut self.allow_ambiguous),
            ),
            (
                "allow_redundant",
                Field::Optional(&mut self.allow_redundant),
            ),
            ("permits", Field::Permits(&mut self.permits)),
            ("with", Field::Pairs(&mut self.with)),
            ("allow_overlap", Field::Pairs(&mut self.allow_overlap)),
            ("guards", Field::Each(&mut self.guards)),
        ]
    }

    /// Finds every record in a program's bytes, sorted and without duplicates. The bytes can be
    /// anything.
    ///
    /// # Errors
    /// The first record that cannot be read.
    pub fn find_all(bytes: &[u8]) -> Result<Vec<Self>, RecordError> {
        records_of(MAGIC, bytes, |text| {
            decode(text, RECORD_VERSION, Self::fields)
        })
    }

    /// Returns the key space of the site's locks.
    ///
    /// # Errors
    /// A scope that this version does not know.
    pub fn key_space(&self) -> Result<KeySpace, RecordError> {
        KeySpace::of(&self.scope, &self.kind)
            .ok_or_else(|| RecordError::Malformed(format!("scope `{}`", self.scope)))
    }
}

// Otherwise a program could not read its own records.
const _: () = {
    let mut at = 0;
    while at < Derivation::ALL.len() {
        assert!(
            first_version(Derivation::ALL[at]) <= RECORD_VERSION,
            "raise `RECORD_VERSION` in `record/format.rs`"
        );
        at += 1;
    }
};

/// The first version of the format that has the derivation.
const fn first_version(derivation: Derivation) -> u32 {
    match derivation {
        Derivation::Sha256
        | Derivation::Md5
        | Derivation::Fnv1a32
        | Derivation::Hashtext
        | Derivation::Hashtextextended => 1,
        Derivation::Fnv1a64 => 2,
    }
}
