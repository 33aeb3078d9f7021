//! The names that a pattern's placeholders can use, and the shapes that their types imply.

use crate::newtypes;
use advisory_pattern::{Guess, Placeholder, Shape};
use proc_macro2::{Ident, Span, TokenStream};
use syn::{GenericArgument, PathArguments, Type};

pub(crate) struct Names<'a> {
    /// The description of a name, for messages: "parameter of `book`".
    pub(crate) of: String,
    /// Each name, and its type if the name alone has it. `None` if any name in scope can be used.
    pub(crate) known: Option<Vec<(&'a Ident, Option<&'a TokenStream>)>>,
    pub(crate) has_self: bool,
    /// Among the fields of a type, the values that `with` computes.
    pub(crate) computed: &'a [(Ident, TokenStream)],
}

impl Names<'_> {
    /// The mistake in the name that a placeholder starts with.
    pub(super) fn refuse(&self, placeholder: &Placeholder) -> Option<String> {
        let (root, source, of) = (placeholder.path.first()?, &placeholder.source, &self.of);
        if root == "self" {
            let fits = self.has_self || self.known.is_none();
            return (!fits).then(|| {
                format!("`<{source}>`: there is no `self` here: write a parameter's name")
            });
        }
        let known = self.known.as_ref()?;
        if known.iter().any(|(name, _)| **name == *root) {
            return None;
        }
        let names: Vec<String> = known
            .iter()
            .map(|(name, _)| name.to_string())
            .filter(|name| name != "conn")
            .collect();
        let close = advisory_pattern::closest(root, names.iter().map(String::as_str));
        let hint = close.map_or_else(
            || {
                let all: Vec<_> = names.iter().map(|name| format!("`<{name}>`")).collect();
                if all.is_empty() {
                    "there is none for a key".to_owned()
                } else {
                    format!("expected {}", all.join(", "))
                }
            },
            |close| format!("did you mean `<{close}>`?"),
        );
        Some(format!("`<{source}>`: `{root}` is not a {of}: {hint}"))
    }

    pub(super) fn has_value(&self, name: &str) -> bool {
        let mut known = self.known.iter().flatten();
        name != "conn" && known.any(|(known, _)| *known == name)
    }

    pub(super) fn is_computed(&self, placeholder: &Placeholder) -> bool {
        let mut computed = self.computed.iter();
        let root = placeholder.path.first();
        computed.any(|(name, _)| root.is_some_and(|root| name == root))
    }

    /// The span of a placeholder's tokens: at the pattern, with the hygiene of the name that the
    /// placeholder starts with.
    pub(super) fn span_of(&self, placeholder: &Placeholder, pattern: Span) -> Span {
        let is_root = |name: &Ident| placeholder.path.first().is_some_and(|root| name == root);
        let mut known = self.known.iter().flatten();
        let root = known.find(|(name, _)| is_root(name));
        root.map_or(pattern, |(name, _)| pattern.resolved_at(name.span()))
    }

    /// The shape that the type's name implies for the value, before any filter; any text if it
    /// implies none. The expansion has the compiler confirm it on the value.
    pub(super) fn shape(&self, placeholder: &Placeholder) -> Shape {
        self.ty(placeholder)
            .and_then(|name| Shape::of_type(&name))
            .unwrap_or(Shape::Text)
    }

    /// The placeholder, if it is treated as text because its type is unknown.
    pub(super) fn guess(&self, placeholder: &Placeholder) -> Option<Guess> {
        if placeholder.shape.is_some() || !placeholder.filters.is_empty() {
            return None;
        }
        let ty = self.ty(placeholder);
        if ty.as_deref().and_then(Shape::of_type).is_some() {
            return None;
        }
        let shape = ty.as_deref().and_then(newtypes::shape);
        let guess = Guess {
            source: placeholder.source.clone(),
            ty,
            shape,
        };
        (shape != Some(Shape::Text)).then_some(guess)
    }

    fn ty(&self, placeholder: &Placeholder) -> Option<String> {
        let [name] = placeholder.path.as_slice() else {
            return None;
        };
        let known = self
            .known
            .iter()
            .flatten()
            .find(|(known, _)| *known == name);
        let ty = known.and_then(|(_, ty)| syn::parse2::<Type>((*ty)?.clone()).ok())?;
        last_name(&ty, placeholder.slice)
    }
}

/// The last name of a type's path, through references and smart pointers, and for a slice that of
/// its elements.
pub(crate) fn last_name(ty: &Type, of_elements: bool) -> Option<String> {
    match ty {
        Type::Reference(reference) => last_name(&reference.elem, of_elements),
        Type::Group(group) => last_name(&group.elem, of_elements),
        Type::Paren(paren) => last_name(&paren.elem, of_elements),
        Type::Slice(slice) if of_elements => last_name(&slice.elem, false),
        Type::Array(array) if of_elements => last_name(&array.elem, false),
        Type::Path(path) if path.qself.is_none() => {
            let last = path.path.segments.last()?;
            let PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return (!of_elements).then(|| last.ident.to_string());
            };
            let inner = arguments
                .args
                .iter()
                .rev()
                .find_map(|argument| match argument {
                    GenericArgument::Type(ty) => Some(ty),
                    _ => None,
                });
            match (last.ident.to_string().as_str(), inner) {
                ("Box" | "Arc" | "Rc" | "Cow", Some(inner)) => last_name(inner, of_elements),
                ("Vec", Some(inner)) if of_elements => last_name(inner, false),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Names, last_name};
    use crate::newtypes::remember;
    use advisory_pattern::Shape;
    use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

    /// The advice of a collision is to write the shape of a guess, so no other placeholder is one.
    #[test]
    fn only_a_value_of_an_unknown_type_is_a_guess() {
        remember("Guessed".to_owned(), Some(Shape::Int));
        remember("Label".to_owned(), Some(Shape::Text));
        let name = Ident::new("a", Span::call_site());
        for (ty, pattern, wanted) in [
            ("TenantId", "<a>", Some((Some("TenantId"), None))),
            ("Guessed", "<a>", Some((Some("Guessed"), Some(Shape::Int)))),
            ("Vec<u8>", "<a>", Some((None, None))),
            ("TenantId", "<a.b>", Some((None, None))),
            ("Label", "<a>", None),
            ("i64", "<a>", None),
            ("TenantId", "<a: int>", None),
            ("TenantId", "<a|lower>", None),
        ] {
            let tokens: TokenStream = ty.parse().expect("tokens");
            let names = Names {
                of: String::new(),
                known: Some(vec![(&name, Some(&tokens))]),
                has_self: false,
                computed: &[],
            };
            let parsed = advisory_pattern::parse(pattern).expect("a pattern");
            let guess = parsed.placeholders().find_map(|found| names.guess(found));
            let guess = guess
                .as_ref()
                .map(|guess| (guess.ty.as_deref(), guess.shape));
            assert_eq!(guess, wanted, "{ty} {pattern}");
        }
    }

    #[test]
    fn a_type_is_known_by_its_last_name() {
        for (written, of_value, of_elements) in [
            ("i64", Some("i64"), None),
            ("&'a mut app::TenantId", Some("TenantId"), None),
            ("(TenantId)", Some("TenantId"), None),
            ("Option<TenantId>", None, None),
            ("Box<Arc<TenantId>>", Some("TenantId"), None),
            ("std::rc::Rc<TenantId>", Some("TenantId"), None),
            ("Cow<'a, str>", Some("str"), None),
            ("Box<N, 3>", Some("N"), None),
            ("&[TenantId]", None, Some("TenantId")),
            ("[TenantId; 2]", None, Some("TenantId")),
            ("&[[TenantId; 2]]", None, None),
            ("Vec<Box<TenantId>>", None, Some("TenantId")),
            ("Arc<Vec<TenantId>>", None, Some("TenantId")),
            ("Vec<Vec<TenantId>>", None, None),
            ("<A as B>::TenantId", None, None),
            ("(A, B)", None, None),
            ("fn() -> A", None, None),
        ] {
            let tokens: TokenStream = written.parse().expect("tokens");
            // The form in which a `macro_rules` macro passes it on.
            let group = TokenTree::Group(Group::new(Delimiter::None, tokens.clone()));
            for tokens in [tokens, group.into()] {
                let ty = syn::parse2(tokens).expect("a type");
                assert_eq!(last_name(&ty, false).as_deref(), of_value, "{written}");
                assert_eq!(last_name(&ty, true).as_deref(), of_elements, "{written}");
            }
        }
    }
}
