//! What is a key pattern, which keys can it render, and which number does a key become?
//!
//! To take locks depend on [`advisory-runtime`](https://docs.rs/advisory-runtime), which needs this crate and re-exports what a program
//! wants of it. This one is for tools that read or compare keys themselves: to compute a key's number without a database
//! ([`Derivation::key`]), or to read the lock sites out of an artifact ([`Record::find_all`]).
//!
//! The macro, the program and the command must agree on what a key is, so they all ask this crate. It knows neither Diesel nor SQL.
//! The pipeline: [`parse`] a literal to a [`Pattern`]; give each placeholder a [`Shape`]; take the pattern's [`Language`];
//! ask for [`overlap`], a [`witness`] or an [`ambiguity`]. [`escape`] and [`Derivation`] are what renders and numbers a key.
#![forbid(unsafe_code)]

mod ambiguity;
mod class;
mod collision;
mod derivation;
pub mod escape;
mod inside;
mod key_space;
mod language;
mod locked_key;
mod lookup3;
mod meeting;
pub mod order;
mod overlap;
mod parse;
mod path;
mod pattern;
mod pattern_error;
mod record;
mod record_error;
mod same;
mod search;
mod shape;
mod suggest;
mod witness;

pub use ambiguity::{Ambiguity, ambiguity};
pub use class::Class;
pub use collision::{Collision, Lock, LockedKey};
pub use derivation::{Derivation, Hasher, sha256};
pub use key_space::KeySpace;
pub use language::{Atom, Language, Repeat};
pub use locked_key::{decode_key, encode_key};
pub use meeting::{Meeting, meetings, meetings_between};
pub use overlap::overlap;
pub use parse::{MAX_BYTES, parse};
pub use pattern::{Filter, Part, Pattern, Placeholder};
pub use pattern_error::PatternError;
pub use record::{MODULE_PATH, RECORD_VERSION, Record};
pub use record_error::RecordError;
pub use shape::Shape;
pub use suggest::closest;
pub use witness::{Witness, witness};
