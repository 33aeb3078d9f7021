//! Key patterns, the keys that they can render, and the numbers that keys become.
//!
//! To take locks, depend on [`advisory-runtime`](https://docs.rs/advisory-runtime), which
//! re-exports what a program needs of this crate. This one is for tools that read or compare keys
//! themselves: to compute a key's number without a database ([`Derivation::key`]), or to read the
//! lock sites out of an artifact ([`Record::find_all`]).
//!
//! The macro, the program and the command must agree on what a key is, so all of them use this
//! crate. It depends on neither Diesel nor SQL. The pipeline: [`parse`] a literal to a [`Pattern`];
//! give each placeholder a [`Shape`]; take the pattern's [`Language`]; look for an [`overlap`], a
//! [`witness`] or an [`ambiguity`]. [`escape`] and [`Derivation`] render and number a key.
//!
//! ```
//! use advisory_pattern::Derivation;
//!
//! // The number that the command prints for this key, and that `pg_advisory_xact_lock` gets.
//! assert_eq!(Derivation::default().key("booking:42"), -4_773_314_698_564_639_978);
//! ```
#![forbid(unsafe_code)]

mod collision;
mod derivation;
mod language;
pub mod order;
mod pattern;
mod record;
mod words;

pub use collision::Collision;
pub use collision::advice::{Advice, Edit, Guess, Side, advice};
pub use collision::lock::{Lock, LockForm};
pub use collision::site_collision::{SiteCollision, site_collisions, site_collisions_between};
pub use derivation::{Derivation, Hasher, sha256};
pub use language::Language;
pub use language::ambiguity::{Ambiguity, ambiguity};
pub use language::overlap::overlap;
pub use language::witness::{Witness, witness};
pub use pattern::atom::{Atom, Repeat};
pub use pattern::char_set::CharSet;
pub use pattern::escape;
pub use pattern::key_space::{Comparison, KeySpace};
pub use pattern::locked_key::{LockedKey, encode_key, pair_text, split_pair_text};
pub use pattern::parse::{MAX_BYTES, PatternError, parse};
pub use pattern::permit::{MOST_PERMITS, Permits, permit_key};
pub use pattern::shape::Shape;
pub use pattern::suggest::closest;
pub use pattern::{Filter, Part, Pattern, Placeholder};
pub use record::{
    CLAIM_COLUMNS, CLAIM_PARTS, CLAIM_START, ClaimRecord, MODULE_PATH, RECORD_VERSION, Record,
    RecordError, decode_key,
};
