//! Names for the patterns in a recording of lock orders: one name for all patterns of a lock.
//!
//! A recording has each pattern as its site writes it, and two sites can write one lock
//! differently.

use super::edge::Edge;
use crate::pattern::parse::parse;
use crate::pattern::shape::Shape;
use crate::pattern::{Filter, Part};
use std::collections::{BTreeMap, BTreeSet};

/// One name for all patterns of a lock: `account:<from>` and `account:<id>` differ only in
/// their placeholders' names.
///
/// A shape can be written or left to the value's type: `night:<night>` and `night:<day: date>`. If
/// all patterns that write a shape at a position agree, it applies to the others too. If they do
/// not, a pattern without a shape cannot be assigned, and all stay apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockNames(BTreeMap<String, Vec<Option<Shape>>>);

impl LockNames {
    /// Collects the shapes that the patterns of these edges write.
    #[must_use]
    pub fn of(edges: &[Edge]) -> Self {
        let mut known: BTreeMap<String, Vec<BTreeSet<Shape>>> = BTreeMap::new();
        for end in edges.iter().flat_map(|edge| [&edge.held, &edge.asked]) {
            let (text, shapes) = read(&end.lock);
            let known = known.entry(text).or_default();
            known.resize_with(shapes.len(), BTreeSet::new);
            for (known, shape) in known.iter_mut().zip(shapes) {
                known.extend(shape);
            }
        }
        let agreed = |shapes: BTreeSet<Shape>| (shapes.len() < 2).then(|| shapes.first().copied());
        let names = known.into_iter().filter_map(|(text, shapes)| {
            let shapes: Option<Vec<_>> = shapes.into_iter().map(agreed).collect();
            Some((text, shapes?))
        });
        Self(names.collect())
    }

    /// Returns the name of the lock with this pattern.
    #[must_use]
    pub fn name(&self, lock: &str) -> String {
        let (mut name, shapes) = read(lock);
        let shapes = self.0.get(&name).unwrap_or(&shapes);
        for shape in shapes {
            // After the text and a tab, which no pattern contains.
            name.push('\t');
            name.push_str(shape.map_or("", Shape::name));
        }
        name
    }
}

/// The pattern without its placeholders' names and shapes, and the shapes that it writes.
fn read(lock: &str) -> (String, Vec<Option<Shape>>) {
    let Ok(pattern) = parse(lock) else {
        return (lock.to_owned(), Vec::new());
    };
    let text = |part: &Part| match part {
        Part::Text(text) => text.replace('<', "<<"),
        Part::Placeholder(placeholder) => {
            let mut filters = placeholder.filters.clone();
            // `|raw` is another spelling of the shape.
            filters.retain(|filter| *filter != Filter::Raw);
            filters.sort_unstable();
            let filters = filters.iter().map(|filter| format!("|{}", filter.name()));
            format!("<{}>", filters.collect::<String>())
        }
    };
    let text = pattern.parts.iter().map(text).collect();
    let shapes = pattern.placeholders().map(|placeholder| {
        let is_raw = placeholder.filters.contains(&Filter::Raw);
        is_raw.then_some(Shape::Raw).or(placeholder.shape)
    });
    (text, shapes.collect())
}

#[cfg(test)]
mod tests {
    use super::LockNames;

    fn is_same(one: &str, other: &str) -> bool {
        let names = LockNames::default();
        names.name(one) == names.name(other)
    }

    #[test]
    fn what_placeholders_are_called_is_no_part_of_a_lock() {
        assert!(is_same("account:<from>", "account:<ids*>"));
        assert!(!is_same("account:<id>", "account:<id|lower>"));
        assert!(!is_same("a:<x>", "b:<x>"));
        assert!(!is_same("a<<b", "a<b>"));
        assert!(is_same("not <closed", "not <closed"));
        assert!(is_same("a:<x|raw>", "a:<y: raw>"));
        assert!(!is_same("a:<x>", "a:<y: raw>"));
    }
}
