//! The first line of a message about a collision.

use super::Collision;
use super::advice::Side;

impl Collision {
    /// Returns the first line of the message.
    #[must_use]
    pub fn headline(&self, here: &Side<'_>, there: &Side<'_>) -> String {
        let (one, other) = (here.written, there.written);
        match self {
            Self::Key(_) if one == other && here.is_one_pattern(there) => {
                let kind = |side: &Side<'_>| side.item.starts_with("fn ");
                let sites = if kind(here) && kind(there) {
                    "functions"
                } else {
                    "sites"
                };
                format!("two {sites} lock the same key: `{one}`")
            }
            Self::Key(_) | Self::Number(_) => {
                format!("advisory lock keys can collide: `{one}` and `{other}`")
            }
            Self::Lease(_) => format!("lease keys can collide: `{one}` and `{other}`"),
            Self::Name(name) => {
                let (one, other) = if one == other {
                    (with_shapes(here), with_shapes(there))
                } else {
                    (one.to_owned(), other.to_owned())
                };
                format!("advisory lock `{name}` has two keys: `{one}` and `{other}`")
            }
            Self::Permits(name) => {
                format!("advisory lock `{name}` has two numbers of permits: `{one}` and `{other}`")
            }
            Self::Scopes(name) => {
                format!("advisory lock `{name}` is two locks: `{one}` and `{other}`")
            }
        }
    }
}

fn with_shapes(side: &Side<'_>) -> String {
    let pattern = side.lock.pattern();
    pattern.map_or_else(
        || side.written.to_owned(),
        |pattern| side.key_of(&pattern.to_string()),
    )
}
