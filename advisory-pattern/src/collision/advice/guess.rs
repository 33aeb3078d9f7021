//! A guess of the shape for a placeholder that is compared as text.

use super::{Advisor, Edit, Guess};
use crate::pattern::shape::Shape;

impl Advisor<'_> {
    /// The shapes for placeholders that are taken for text, if they make the locks different.
    pub(super) fn shapes(&self, options: &mut Vec<Vec<Edit>>) -> Option<String> {
        for is_here in [true, false] {
            let side = self.side(is_here);
            for guess in side.guesses {
                let shapes = match &guess.shape {
                    Some(shape) => std::slice::from_ref(shape),
                    None => likely_shapes(guess),
                };
                let mut offered = Vec::new();
                for shape in shapes {
                    let key = guess.write(*shape, side.written);
                    let edits = vec![Edit::key(is_here, key)];
                    if self.solves(&edits) {
                        offered.push(format!("`{}`", guess.with(*shape)));
                        options.push(edits);
                    }
                }
                if !offered.is_empty() {
                    return Some(guess.advice(&side.at(is_here), &offered.join(" or ")));
                }
            }
        }
        self.all_shapes(options)
    }

    /// Like `shapes`, for all placeholders together that have a type with a known declaration.
    fn all_shapes(&self, options: &mut Vec<Vec<Edit>>) -> Option<String> {
        let (mut edits, mut shaped) = (Vec::new(), Vec::new());
        for is_here in [true, false] {
            let side = self.side(is_here);
            let mut key = side.written.to_owned();
            for guess in side.guesses {
                if let Some(shape) = guess.shape {
                    key = guess.write(shape, &key);
                    shaped.push(format!("`{}`{}", guess.with(shape), side.at(is_here)));
                }
            }
            if key != side.written {
                edits.push(Edit::key(is_here, key));
            }
        }
        if edits.is_empty() || !self.solves(&edits) {
            return None;
        }
        options.push(edits);
        let shaped = shaped.join(", and ");
        Some(format!(
            "the macro sees only the names of types, and compares unknown ones as any text: write the shapes, {shaped}"
        ))
    }
}

impl Guess {
    fn with(&self, shape: Shape) -> String {
        format!("<{}: {}>", self.source.trim(), shape.name())
    }

    fn write(&self, shape: Shape, key: &str) -> String {
        key.replace(&format!("<{}>", self.source), &self.with(shape))
    }

    /// ``the macro does not know `TenantId` and takes `<tenant>` for text: write its shape,
    /// `<tenant: uuid>` ``
    fn advice(&self, at: &str, offered: &str) -> String {
        let source = &self.source;
        let such_as = self.shape.map_or("such as ", |_| "");
        match &self.ty {
            Some(ty) => format!(
                "`<{source}>` is taken for any text, because the macro sees only the name of `{ty}`: write its shape, {such_as}{offered}{at}"
            ),
            None => format!(
                "`<{source}>` has no shape, and is taken for any text: if it is not, write its shape, such as {offered}{at}"
            ),
        }
    }
}

fn likely_shapes(guess: &Guess) -> &'static [Shape] {
    let ty = guess.ty.as_deref().unwrap_or_default();
    let names = format!("{} {ty}", guess.source).to_lowercase();
    let has = |word: &str| names.contains(word);
    if has("date") || has("day") {
        &[Shape::Date]
    } else if has("number") || has("count") || has("month") || has("year") || has("week") {
        &[Shape::Int]
    } else {
        &[Shape::Uuid, Shape::Int]
    }
}
