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
    let Ok(mut pattern) = parse(lock) else {
        return (lock.to_owned(), Vec::new());
    };
    let mut shapes = Vec::new();
    for part in &mut pattern.parts {
        if let Part::Placeholder(placeholder) = part {
            placeholder.path.clear();
            placeholder.slice = false;
            let (shape, filters) = (placeholder.shape.take(), &mut placeholder.filters);
            // `|raw` is another spelling of the shape.
            let is_raw = filters.contains(&Filter::Raw);
            shapes.push(is_raw.then_some(Shape::Raw).or(shape));
            filters.retain(|filter| *filter != Filter::Raw);
            filters.sort_unstable();
        }
    }
    (pattern.to_string(), shapes)
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
