//! What is a key pattern, which keys can it render, and which number does a key become?
//!
//! To take locks, depend on [`advisory-runtime`](https://docs.rs/advisory-runtime), which re-exports what a program needs of this
//! crate. This one is for tools that read or compare keys themselves: to compute a key's number without a database
//! ([`Derivation::key`]), or to read the lock sites out of an artifact ([`Record::find_all`]).
//!
//! The macro, the program and the command must agree on what a key is, so all of them use this crate. It depends on neither Diesel nor
//! SQL. The pipeline: [`parse`] a literal to a [`Pattern`]; give each placeholder a [`Shape`]; take the pattern's [`Language`];
//! look for an [`overlap`], a [`witness`] or an [`ambiguity`]. [`escape`] and [`Derivation`] render and number a key.
#![forbid(unsafe_code)]

mod advice;
mod ambiguity;
mod atom;
mod char_set;
mod collision;
mod derivation;
pub mod escape;
mod key_space;
mod language;
mod lock;
mod locked_key;
pub mod order;
mod overlap;
mod pair_text;
mod parse;
mod pattern;
mod permit;
mod record;
mod shape;
mod shortest_key;
mod site_collision;
mod suggest;
mod witness;

pub use advice::{Advice, Edit, Guess, Side, advice};
pub use ambiguity::{Ambiguity, ambiguity};
pub use atom::{Atom, Repeat};
pub use char_set::CharSet;
pub use collision::Collision;
pub use derivation::{Derivation, Hasher, sha256};
pub use key_space::{Comparison, KeySpace};
pub use language::Language;
pub use lock::{Lock, LockForm};
pub use locked_key::LockedKey;
pub use overlap::overlap;
pub use pair_text::{pair_text, split_pair_text};
pub use parse::{MAX_BYTES, PatternError, parse};
pub use pattern::{Filter, Part, Pattern, Placeholder};
pub use permit::{MOST_PERMITS, Permits, permit_key};
pub use record::{MODULE_PATH, RECORD_VERSION, Record, RecordError, decode_key, encode_key};
pub use shape::Shape;
pub use site_collision::{SiteCollision, site_collisions, site_collisions_between};
pub use suggest::closest;
pub use witness::{Witness, witness};
