//! The record of a lock site: written into a program, and read from its bytes.
//!
//! The macro puts a record for each site into a separate section; the program's tests and the
//! command read the records without running anything. A record is flat text between two control
//! characters, so it needs no relocation and survives any linker.

mod claim_record;
mod error;
mod format;
mod key;

use crate::derivation::Derivation;
use crate::pattern::key_space::KeySpace;
use crate::pattern::locked_key::HALF;
use crate::pattern::permit::Permits;
pub use claim_record::{CLAIM_COLUMNS, CLAIM_PARTS, CLAIM_START, ClaimRecord};
pub use error::RecordError;
pub use format::RECORD_VERSION;
use format::{END, FIELD, MAGIC, PART, START, clean, join_parts, records_of};
pub use key::decode_key;

/// Holds one lock site as a program contains it.
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
    /// How the rendered key becomes a number; `sha256` for a lease, whose key stays a text.
    pub derivation: String,
    /// `xact`, `session`, `lease`; `none` for a declared key, whose scope is that of the sites that
    /// use it.
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
    /// The tables whose writes need the lock, if the site names some: a trigger refuses writes
    /// without it.
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

/// Marks the place of the module's path, which only the compiler knows: the macro inserts
/// `module_path!()` there.
pub const MODULE_PATH: &str = "\u{1a}";

impl Record {
    /// Writes the record. Control characters in values become spaces.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!("{START}{MAGIC}{FIELD}{}", self.format_version());
        for (name, value) in self.fields() {
            text.push(FIELD);
            text.push_str(name);
            text.push('=');
            text.push_str(&value);
        }
        text.push(END);
        text
    }

    /// The lowest version of the format that has what the record says, so that an older reader
    /// refuses only what it would misread.
    fn format_version(&self) -> u32 {
        let has_half = self.keys.iter().any(|key| key.starts_with(HALF));
        let of_derivation = Derivation::from_name(&self.derivation).map_or(1, first_version);
        of_derivation.max(if has_half { 2 } else { 1 })
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("kind", clean(&self.kind)),
            ("written", join_parts(&self.written)),
            ("keys", join_parts(&self.keys)),
            ("derivation", clean(&self.derivation)),
            ("scope", clean(&self.scope)),
            ("mode", clean(&self.mode)),
            (
                "module",
                if self.module == MODULE_PATH {
                    self.module.clone()
                } else {
                    clean(&self.module)
                },
            ),
            ("function", clean(&self.function)),
            ("file", clean(&self.file)),
            ("line", self.line.to_string()),
            ("crate", clean(&self.krate)),
            ("version", clean(&self.version)),
        ];
        // An empty list, which has no text, would be read as one empty text.
        fields.retain(|(name, _)| match *name {
            "written" => !self.written.is_empty(),
            "keys" => !self.keys.is_empty(),
            _ => true,
        });
        let optional = [
            ("name", &self.name),
            ("component", &self.component),
            ("purpose", &self.purpose),
            ("wait", &self.wait),
            ("poll", &self.poll),
            ("max_hold", &self.max_hold),
            ("isolation", &self.isolation),
            ("ttl", &self.ttl),
            ("renew", &self.renew),
            ("keep", &self.keep),
            ("allow_ambiguous", &self.allow_ambiguous),
            ("allow_redundant", &self.allow_redundant),
        ];
        fields.extend(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, clean(value.as_ref()?)))),
        );
        if let Some(permits) = &self.permits {
            fields.push(("permits", clean(&permits.to_string())));
        }
        for (placeholder, expression) in &self.with {
            fields.push(("with", join_parts([placeholder, expression])));
        }
        for (other, reason) in &self.allow_overlap {
            fields.push(("allow_overlap", join_parts([other, reason])));
        }
        for table in &self.guards {
            fields.push(("guards", clean(table)));
        }
        fields
    }

    fn decode(text: &str) -> Result<Self, RecordError> {
        let mut fields = text.split(FIELD);
        let version = fields
            .next()
            .and_then(|head| head.strip_prefix(MAGIC))
            .map(|_| fields.next());
        let version = version.flatten().unwrap_or_default();
        match version.parse::<u32>() {
            Ok(version) if version <= RECORD_VERSION => {}
            Ok(_) => return Err(RecordError::Newer(version.to_owned())),
            Err(_) => return Err(RecordError::Malformed(format!("version `{version}`"))),
        }
        let mut record = Self::default();
        for field in fields {
            let Some((name, value)) = field.split_once('=') else {
                return Err(RecordError::Malformed(format!("`{field}`")));
            };
            let text = || clean(value);
            let texts = || value.split(PART).map(clean).collect();
            match name {
                "kind" => record.kind = text(),
                "name" => record.name = Some(text()),
                "component" => record.component = Some(text()),
                "purpose" => record.purpose = Some(text()),
                "written" => record.written = texts(),
                "keys" => record.keys = texts(),
                "derivation" => record.derivation = text(),
                "scope" => record.scope = text(),
                "mode" => record.mode = text(),
                "wait" => record.wait = Some(text()),
                "poll" => record.poll = Some(text()),
                "permits" => {
                    // Each permit has a key to compare.
                    record.permits = Permits::parse(&text());
                    if record.permits.is_none() {
                        return Err(RecordError::Malformed(format!("permits `{value}`")));
                    }
                }
                "max_hold" => record.max_hold = Some(text()),
                "isolation" => record.isolation = Some(text()),
                "ttl" => record.ttl = Some(text()),
                "renew" => record.renew = Some(text()),
                "keep" => record.keep = Some(text()),
                "allow_ambiguous" => record.allow_ambiguous = Some(text()),
                "allow_redundant" => record.allow_redundant = Some(text()),
                "allow_overlap" => {
                    let (other, reason) = value.split_once(PART).unwrap_or((value, ""));
                    record.allow_overlap.push((clean(other), clean(reason)));
                }
                "with" => {
                    let (placeholder, expression) = value.split_once(PART).unwrap_or((value, ""));
                    record.with.push((clean(placeholder), clean(expression)));
                }
                "guards" => record.guards.push(text()),
                "module" if value == MODULE_PATH => MODULE_PATH.clone_into(&mut record.module),
                "module" => record.module = text(),
                "function" => record.function = text(),
                "file" => record.file = text(),
                "line" => {
                    let line = value.parse();
                    record.line =
                        line.map_err(|_| RecordError::Malformed(format!("line `{value}`")))?;
                }
                "crate" => record.krate = text(),
                "version" => record.version = text(),
                _ => {}
            }
        }
        Ok(record)
    }

    /// Finds every record in a program's bytes, sorted and without duplicates. The bytes can be
    /// anything.
    ///
    /// # Errors
    /// The first record that cannot be read.
    pub fn find_all(bytes: &[u8]) -> Result<Vec<Self>, RecordError> {
        records_of(MAGIC, bytes, Self::decode)
    }

    /// Gives the key space of the site's locks.
    ///
    /// # Errors
    /// A scope that this version does not know.
    pub fn key_space(&self) -> Result<KeySpace, RecordError> {
        KeySpace::of(&self.scope, &self.kind)
            .ok_or_else(|| RecordError::Malformed(format!("scope `{}`", self.scope)))
    }
}

/// The first version of the format whose readers know the derivation.
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
