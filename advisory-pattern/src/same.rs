//! Which locks of a recording are one? They are known by their patterns as each site writes them.

use crate::order::Edge;
use crate::{Part, Shape, parse};
use std::collections::BTreeMap;

/// Names locks whatever their placeholders are called: `account:<from>` and `account:<id>` are one.
///
/// A shape can be written or left to the value's type, `night:<night>` and `night:<day: date>`. Where only one shape is written
/// at a place it is that of all; where there are two, nobody can tell whose a pattern without one is, and all stay apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, Vec<Option<Shape>>>);

impl Names {
    /// Learns the shapes that the locks of these edges have.
    #[must_use]
    pub fn of(edges: &[Edge]) -> Self {
        let mut known: BTreeMap<String, Vec<Vec<Shape>>> = BTreeMap::new();
        for end in edges.iter().flat_map(|edge| [&edge.held, &edge.asked]) {
            let (text, shapes) = read(&end.lock);
            let known = known.entry(text).or_default();
            known.resize_with(shapes.len(), Vec::new);
            for (known, shape) in known.iter_mut().zip(shapes) {
                known.extend(shape);
            }
        }
        let agreed = |shapes: Vec<Vec<Shape>>| {
            let one = |mut shapes: Vec<Shape>| {
                shapes.sort_unstable();
                shapes.dedup();
                match shapes.as_slice() {
                    [] => Some(None),
                    [one] => Some(Some(*one)),
                    _ => None,
                }
            };
            shapes.into_iter().map(one).collect::<Option<Vec<_>>>()
        };
        let names = known.into_iter();
        Self(
            names
                .filter_map(|(text, shapes)| Some((text, agreed(shapes)?)))
                .collect(),
        )
    }

    /// The name of a lock, the same for each pattern that is this one lock.
    #[must_use]
    pub fn name(&self, lock: &str) -> String {
        let (mut name, shapes) = read(lock);
        let shapes = self.0.get(&name).unwrap_or(&shapes);
        for shape in shapes {
            // Behind the text, where no pattern's own text can be mistaken for it.
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
            filters.sort_unstable();
            let filters = filters.iter().map(|filter| format!("|{}", filter.name()));
            format!("<{}>", filters.collect::<String>())
        }
    };
    let text = pattern.parts.iter().map(text).collect();
    let shapes = pattern.placeholders().map(|placeholder| placeholder.shape);
    (text, shapes.collect())
}

#[cfg(test)]
mod tests {
    use super::Names;

    fn is_same(one: &str, other: &str) -> bool {
        let names = Names::default();
        names.name(one) == names.name(other)
    }

    #[test]
    fn what_placeholders_are_called_is_no_part_of_a_lock() {
        assert!(is_same("account:<from>", "account:<ids*>"));
        assert!(!is_same("account:<id>", "account:<id|lower>"));
        assert!(!is_same("a:<x>", "b:<x>"));
        assert!(!is_same("a<<b", "a<b>"));
        assert!(is_same("not <closed", "not <closed"));
    }
}
