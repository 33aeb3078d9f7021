//! One key pattern in the macro: whose values it renders, what is wrong with it there, and the code that renders it.

use crate::errors::Errors;
use crate::seen::Known;
use advisory_pattern::{
    Derivation, Filter, Language, LockedKey, Part, Pattern, Placeholder, Shape,
};
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{GenericArgument, LitStr, PathArguments, Type};

/// A key pattern that parses.
pub(crate) struct KeyPattern {
    pub(crate) literal: LitStr,
    pattern: Pattern,
}

/// What placeholders can name.
pub(crate) struct Names<'a> {
    /// Whose names they are, for messages: "parameter of `book`".
    pub(crate) of: String,
    /// Name and type, where the name has one of its own. `None` where any name in scope will do.
    pub(crate) known: Option<Vec<(&'a Ident, Option<&'a TokenStream>)>>,
    pub(crate) has_self: bool,
}

impl KeyPattern {
    pub(crate) fn parse(literal: LitStr, errors: &mut Errors) -> Option<Self> {
        match advisory_pattern::parse(&literal.value()) {
            Ok(pattern) => Some(Self { literal, pattern }),
            Err(found) => {
                for error in &found {
                    errors.at(literal.span(), error);
                }
                None
            }
        }
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pattern.placeholders()
    }

    pub(crate) fn slice(&self) -> Option<&Placeholder> {
        self.placeholders().find(|placeholder| placeholder.slice)
    }

    /// Placeholders name something, filters fit, and two lists of values never render one key.
    pub(crate) fn check(&self, names: &Names<'_>, may_be_ambiguous: bool, errors: &mut Errors) {
        let span = self.literal.span();
        for placeholder in self.placeholders() {
            if let Some(odd) = placeholder.path.iter().find(|step| !is_step(step)) {
                errors.at(
                    span,
                    format_args!("`<{}>`: `{odd}` is no name", placeholder.source),
                );
                continue;
            }
            if let Some(unknown) = names.refuse(placeholder) {
                errors.at(span, unknown);
                continue;
            }
            let shape = names.shape(placeholder);
            for filter in placeholder.misfits(|_| shape) {
                errors.at(
                    span,
                    format_args!("`<{}>`: {}", placeholder.source, filter.refusal(shape)),
                );
            }
        }
        if self.is_separated(names) {
            return;
        }
        let language = self.language(names);
        if let Some(ambiguity) = advisory_pattern::ambiguity(&self.pattern, &language)
            && !may_be_ambiguous
        {
            let help = &ambiguity.help;
            errors.at(
                span,
                format_args!("different values can render one key: {ambiguity}; {help}"),
            );
        }
    }

    /// Whether each placeholder stands alone between two `:`, and no value has one of its own. Such a pattern is unambiguous, as
    /// nearly all are, and the search for the two readings is long where it finds none.
    fn is_separated(&self, names: &Names<'_>) -> bool {
        let mut is_open = true;
        self.pattern.parts.iter().all(|part| match part {
            Part::Text(text) => {
                is_open |= text.contains(':');
                true
            }
            Part::Placeholder(placeholder) => {
                let shape = placeholder.rendered_shape(|placeholder| names.shape(placeholder));
                std::mem::take(&mut is_open) && shape != Shape::Raw
            }
        })
    }

    /// The pattern with a shape for every placeholder: what two sites are compared by.
    pub(crate) fn known(&self, names: &Names<'_>) -> Known {
        let shaped = self.pattern.shaped(|placeholder| names.shape(placeholder));
        Known {
            written: self.literal.value(),
            key: Some(LockedKey::Pattern(shaped)),
            span: self.literal.span(),
        }
    }

    fn language(&self, names: &Names<'_>) -> Language {
        self.pattern
            .language(|placeholder| names.shape(placeholder))
    }

    /// Statements that write the rendered text into the local `key`. Where `this` is given, placeholders are its fields.
    pub(crate) fn writes(
        &self,
        names: &Names<'_>,
        krate: &TokenStream,
        this: Option<&Ident>,
    ) -> TokenStream {
        let here = Span::mixed_site();
        let (mut writes, mut before) = (TokenStream::new(), String::new());
        for part in &self.pattern.parts {
            match part {
                Part::Text(text) => before.push_str(text),
                Part::Placeholder(placeholder) => {
                    let before = std::mem::take(&mut before);
                    writes.extend(self.write(&before, placeholder, names, krate, this));
                }
            }
        }
        if !before.is_empty() {
            writes.extend(quote_spanned!(here=> key.text(#before);));
        }
        writes
    }

    /// An expression: the key, or for a pattern without placeholders the constant that it is.
    pub(crate) fn expression(
        &self,
        names: &Names<'_>,
        derivation: Derivation,
        krate: &TokenStream,
    ) -> TokenStream {
        let here = Span::mixed_site();
        if let Some(number) = self.constant(derivation) {
            return quote_spanned!(here=> #krate::Key::BigInt(#number));
        }
        let writes = self.writes(names, krate, None);
        let new = writer(derivation, krate);
        quote_spanned!(here=> { let mut key = #new; #writes key.finish() })
    }

    fn constant(&self, derivation: Derivation) -> Option<i64> {
        Some(derivation.key(&self.pattern.constant()?))
    }

    /// A statement that writes the text before a placeholder and its value.
    fn write(
        &self,
        before: &str,
        placeholder: &Placeholder,
        names: &Names<'_>,
        krate: &TokenStream,
        this: Option<&Ident>,
    ) -> TokenStream {
        // The user's own names, and the compiler's complaints about their values at the pattern.
        let at = self.literal.span().resolved_at(Span::mixed_site());
        let shape = placeholder.rendered_shape(|placeholder| names.shape(placeholder));
        // Every value renders as some text, so there is nothing to confirm.
        let is_any = shape == Shape::Text;
        let shape = Ident::new(shape.variant(), at);
        let value = if placeholder.slice {
            quote_spanned!(at=> element)
        } else {
            let path = self.path(placeholder, names, this);
            quote_spanned!(at=> &#path)
        };
        let value = if placeholder.filters.contains(&Filter::Display) {
            quote_spanned!(at=> &#krate::__private::Displayed(#value))
        } else {
            value
        };
        let filters: Vec<Ident> = placeholder
            .filters
            .iter()
            .filter(|filter| **filter != Filter::Display)
            .map(|filter| Ident::new(filter.variant(), at))
            .collect();
        if !filters.is_empty() {
            let text = (!before.is_empty()).then(|| quote_spanned!(at=> key.text(#before);));
            return quote_spanned!(at=>
                #text
                key.filtered::<#krate::shape::#shape, _>(#value, &[#(#krate::__private::Filter::#filters),*]);
            );
        }
        if is_any {
            quote_spanned!(at=> key.any(#before, #value);)
        } else if before.is_empty() {
            quote_spanned!(at=> key.part::<#krate::shape::#shape, _>(#value);)
        } else {
            quote_spanned!(at=> key.shaped::<#krate::shape::#shape, _>(#before, #value);)
        }
    }

    /// The placeholder's path as the expression that it is.
    pub(crate) fn path(
        &self,
        placeholder: &Placeholder,
        names: &Names<'_>,
        this: Option<&Ident>,
    ) -> TokenStream {
        // The name that was checked, also where a macro wrote the parameter and its caller the pattern.
        let span = names.span_of(placeholder, self.literal.span());
        let mut path = TokenStream::new();
        if let Some(this) = this {
            this.to_tokens(&mut path);
        }
        for step in &placeholder.path {
            if !path.is_empty() {
                quote_spanned!(span=> .).to_tokens(&mut path);
            }
            step_tokens(step, span).to_tokens(&mut path);
        }
        path
    }
}

impl Names<'_> {
    /// What is wrong with the name that a placeholder starts with.
    fn refuse(&self, placeholder: &Placeholder) -> Option<String> {
        let (root, source, of) = (placeholder.path.first()?, &placeholder.source, &self.of);
        if root == "self" {
            let fits = self.has_self || self.known.is_none();
            return (!fits).then(|| {
                format!("`<{source}>`: there is no `self` here; write a parameter's name")
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
        Some(format!("`<{source}>`: `{root}` is no {of}; {hint}"))
    }

    /// Where a placeholder's tokens stand: at the pattern, and among the names that its first one is of.
    fn span_of(&self, placeholder: &Placeholder, pattern: Span) -> Span {
        let is_root = |name: &Ident| placeholder.path.first().is_some_and(|root| name == root);
        let mut known = self.known.iter().flatten();
        let root = known.find(|(name, _)| is_root(name));
        root.map_or(pattern, |(name, _)| pattern.resolved_at(name.span()))
    }

    /// What the type's name says of the value, before any filter; any text where it says nothing. The expansion has the
    /// compiler confirm it on the value.
    fn shape(&self, placeholder: &Placeholder) -> Shape {
        let [name] = placeholder.path.as_slice() else {
            return Shape::Text;
        };
        let known = self
            .known
            .iter()
            .flatten()
            .find(|(known, _)| *known == name);
        let ty = known.and_then(|(_, ty)| syn::parse2::<Type>((*ty)?.clone()).ok());
        let last = ty.and_then(|ty| last_name(&ty, placeholder.slice));
        last.and_then(|last| Shape::of_type(&last))
            .unwrap_or(Shape::Text)
    }
}

/// A `KeyWriter` of the derivation.
pub(crate) fn writer(derivation: Derivation, krate: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let derivation = Ident::new(derivation.variant(), here);
    quote_spanned!(here=> #krate::__private::KeyWriter::new(#krate::__private::Derivation::#derivation))
}

/// `self`, a name, or the index of a tuple's field.
fn is_step(step: &str) -> bool {
    step == "self" || step.parse::<usize>().is_ok() || syn::parse_str::<Ident>(step).is_ok()
}

fn step_tokens(step: &str, span: Span) -> TokenStream {
    if let Ok(index) = step.parse::<usize>() {
        let mut index = Literal::usize_unsuffixed(index);
        index.set_span(span);
        return index.into_token_stream();
    }
    // `check` has refused what is neither a name nor `self`.
    let mut name = syn::parse_str(step).unwrap_or_else(|_| Ident::new("self", span));
    name.set_span(span);
    name.into_token_stream()
}

/// The last name of a type's path, through references and smart pointers, and for a slice that of its elements.
fn last_name(ty: &Type, of_elements: bool) -> Option<String> {
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
    use super::writer;
    use advisory_pattern::Derivation;
    use quote::quote;

    /// The expansion must never lock another derivation's number.
    #[test]
    fn every_derivation_is_emitted_as_itself() {
        for derivation in Derivation::ALL {
            let emitted = writer(derivation, &quote!(runtime)).to_string();
            let expected = format!("Derivation :: {derivation:?})");
            assert!(emitted.ends_with(&expected), "{emitted}");
        }
    }
}
