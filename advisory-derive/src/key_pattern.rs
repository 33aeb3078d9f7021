//! One key pattern in the macro: its check against the names at its site, and the code that renders
//! it.

pub(crate) mod names;

use crate::errors::Errors;
use crate::site_facts::StaticKey;
use crate::tokens::hygienic;
use advisory_pattern::{
    Derivation, Filter, LockedKey, Part, Pattern, Placeholder, Shape, pair_text,
};
use names::Names;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::LitStr;

pub(crate) struct KeyPattern {
    pub(crate) literal: LitStr,
    /// The first half of a pair; the second half is derived from the pattern.
    first: Option<i32>,
    pattern: Pattern,
}

#[derive(Clone, Copy)]
pub(crate) enum Ambiguity {
    Accepted,
    /// Refused without the argument `allow_ambiguous`.
    Refused,
    /// Always refused: the attribute has no such argument, unlike a declared lock.
    RefusedForLease,
}

impl Ambiguity {
    pub(crate) const fn unless(is_accepted: bool) -> Self {
        if is_accepted {
            Self::Accepted
        } else {
            Self::Refused
        }
    }

    const fn how_to_accept(self) -> Option<&'static str> {
        match self {
            Self::Accepted => None,
            Self::Refused => Some("give a reason with `allow_ambiguous = \"…\"`"),
            Self::RefusedForLease => Some(
                "declare the lock with a reason, `#[lock_key(\"…\", allow_ambiguous = \"…\")]`, and write it as the `key`",
            ),
        }
    }
}

impl KeyPattern {
    pub(crate) fn parse(first: Option<i32>, literal: LitStr, errors: &mut Errors) -> Option<Self> {
        match advisory_pattern::parse(&literal.value()) {
            Ok(pattern) => Some(Self {
                literal,
                first,
                pattern,
            }),
            Err(found) => {
                for error in &found {
                    errors.at(literal.span(), error);
                }
                None
            }
        }
    }

    /// The key as messages and the inventory show it.
    pub(crate) fn text(&self) -> String {
        let text = self.literal.value();
        match self.first {
            Some(first) => pair_text(first, &text),
            None => text,
        }
    }

    /// Checks that a pair's second half has 32 bits; `at` is the argument `derivation`.
    pub(crate) fn check_half(
        &self,
        derivation: Option<Derivation>,
        at: Option<Span>,
        errors: &mut Errors,
    ) {
        if self.first.is_none() || derivation.is_some_and(|given| given.bits() == 32) {
            return;
        }
        let words =
            "`derivation = \"hashtext\"`, as the server computes it, or `derivation = \"fnv1a32\"`";
        match derivation {
            Some(given) => {
                let wanted = format_args!(
                    "the second half of a pair has 32 bits, and `{}` gives {}: write {words}",
                    given.name(),
                    given.bits()
                );
                errors.at(at.unwrap_or_else(|| self.literal.span()), wanted);
            }
            // `choice` has reported the value.
            None if at.is_some() => {}
            None => {
                let wanted = format_args!(
                    "the second half of a pair has 32 bits, and the default derivation gives 64: add {words}"
                );
                errors.at(self.literal.span(), wanted);
            }
        }
    }

    pub(crate) fn has_root(&self, name: &Ident) -> bool {
        self.pattern
            .placeholders()
            .any(|placeholder| placeholder.path.first().is_some_and(|root| name == root))
    }

    pub(crate) fn slice(&self) -> Option<&Placeholder> {
        self.pattern
            .placeholders()
            .find(|placeholder| placeholder.slice)
    }

    /// Reports a slice where one key is needed; `instead` is what it would give.
    pub(crate) fn refuse_slice(&self, instead: &str, errors: &mut Errors) {
        if let Some(slice) = self.slice() {
            let wanted = format_args!("`<{}>` would be {instead}", slice.source);
            errors.at(self.literal.span(), wanted);
        }
    }

    /// Checks that placeholders name values, that filters fit, and that two lists of values never
    /// render one key.
    pub(crate) fn check(&self, names: &Names<'_>, ambiguity: Ambiguity, errors: &mut Errors) {
        let span = self.literal.span();
        for placeholder in self.pattern.placeholders() {
            let source = &placeholder.source;
            if let Some(odd) = placeholder.path.iter().find(|step| !is_step(step)) {
                errors.at(span, format_args!("`<{source}>`: `{odd}` is not a name"));
                continue;
            }
            if let Some(unknown) = names.refuse(placeholder) {
                errors.at(span, unknown);
                continue;
            }
            let shape = names.shape(placeholder);
            for filter in placeholder.misfits(|_| shape) {
                let refusal = filter.refusal(shape);
                errors.at(span, format_args!("`<{source}>`: {refusal}"));
            }
        }
        let text = self.literal.value();
        if text.trim().parse::<i128>().is_ok() && matches!(ambiguity, Ambiguity::Refused) {
            let number = text.trim();
            let number = self
                .first
                .map_or_else(|| number.to_owned(), |first| format!("({first}, {number})"));
            errors.at(
                span,
                format_args!(
                    "`\"{text}\"` is a key pattern, and its hash would be the key: write `{number}` for the number, or begin the pattern with a word, \
                     such as `\"job:{text}\"`"
                ),
            );
        }
        if let Some(word) = self.names_value_in_text(names)
            && let Some(reason) = ambiguity.how_to_accept()
        {
            errors.at(
                span,
                format_args!(
                    "`{word}` is plain text in this key, so all values share one lock: write `<{word}>`, or {reason}"
                ),
            );
        }
        if self.is_separated(names) {
            return;
        }
        let pattern = &self.pattern;
        let language = pattern.language(|placeholder| names.shape(placeholder));
        if let Some(reason) = ambiguity.how_to_accept()
            && let Some(ambiguity) = advisory_pattern::ambiguity(pattern, &language)
        {
            let help = &ambiguity.help;
            errors.at(
                span,
                format_args!(
                    "different values can render the same key: {ambiguity}; {help}, which makes it another lock, or {reason}"
                ),
            );
        }
    }

    /// A value's name between the `:` of a pattern without placeholders: `user:user_id`, or an
    /// identifier by itself, `user_id`.
    fn names_value_in_text(&self, names: &Names<'_>) -> Option<String> {
        let text = self.pattern.constant()?;
        let is_id = text == "id" || text.ends_with("_id");
        let mut words = text.split(':').skip(usize::from(!is_id));
        let word = words.find(|word| names.has_value(word))?;
        Some(word.to_owned())
    }

    /// Returns whether `:` separates all placeholders, and no value contains a `:`. Such a pattern,
    /// as nearly all are, is unambiguous: it needs no search for two readings, which is slowest if
    /// there are none.
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

    /// The pattern with a shape for every placeholder, by which two sites are compared.
    pub(crate) fn static_key(&self, names: &Names<'_>) -> StaticKey {
        let shaped = self.pattern.shaped(|placeholder| names.shape(placeholder));
        StaticKey {
            written: self.text(),
            key: Some(match self.first {
                Some(first) => LockedKey::IntPattern(first, shaped),
                None => LockedKey::Pattern(shaped),
            }),
            span: self.literal.span(),
            guesses: self
                .pattern
                .placeholders()
                .filter_map(|placeholder| names.guess(placeholder))
                .collect(),
        }
    }

    /// Statements that write the rendered text into the local `key`. With `this`, placeholders are
    /// its fields, except for those that `with` computes.
    pub(crate) fn writes(
        &self,
        names: &Names<'_>,
        krate: &TokenStream,
        this: Option<&Ident>,
    ) -> TokenStream {
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
            writes.extend(hygienic!(key.text(#before);));
        }
        writes
    }

    /// An expression: the key, a constant for a pattern without placeholders.
    pub(crate) fn expression(
        &self,
        names: &Names<'_>,
        derivation: Derivation,
        krate: &TokenStream,
    ) -> TokenStream {
        if let Some(text) = self.pattern.constant() {
            if let Some(first) = self.first {
                let second = derivation.half(&text);
                return hygienic!(#krate::Key::IntInt(#first, #second));
            }
            let number = derivation.key(&text);
            return hygienic!(#krate::Key::BigInt(#number));
        }
        let writes = self.writes(names, krate, None);
        let (new, finish) = (writer(derivation, krate), self.finish());
        hygienic!({ let mut key = #new; #writes #finish })
    }

    /// An expression: the key of what was written into the local `key`.
    pub(crate) fn finish(&self) -> TokenStream {
        if let Some(first) = self.first {
            hygienic!(key.finish_pair(#first))
        } else {
            hygienic!(key.finish())
        }
    }

    /// An expression: the text that was written into the local `key`.
    pub(crate) fn rendered(&self) -> TokenStream {
        if let Some(first) = self.first {
            hygienic!(key.into_pair_text(#first))
        } else {
            hygienic!(key.into_text())
        }
    }

    fn write(
        &self,
        before: &str,
        placeholder: &Placeholder,
        names: &Names<'_>,
        krate: &TokenStream,
        this: Option<&Ident>,
    ) -> TokenStream {
        // The compiler reports errors in these values at the pattern.
        let at = self.literal.span().resolved_at(Span::mixed_site());
        let shape = placeholder.rendered_shape(|placeholder| names.shape(placeholder));
        // Every value renders as some text, so the compiler has nothing to confirm.
        let is_text = shape == Shape::Text;
        // `<x: raw>` is another spelling of `<x|raw>`.
        let is_raw = shape == Shape::Raw && !placeholder.filters.contains(&Filter::Raw);
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
            .chain(is_raw.then_some(&Filter::Raw))
            .map(|filter| Ident::new(filter.variant(), at))
            .collect();
        if !filters.is_empty() {
            let text = (!before.is_empty()).then(|| quote_spanned!(at=> key.text(#before);));
            return quote_spanned!(at=>
                #text
                key.filtered::<#krate::shape::#shape, _>(#value, &[#(#krate::__private::Filter::#filters),*]);
            );
        }
        if is_text {
            quote_spanned!(at=> key.any(#before, #value);)
        } else if before.is_empty() {
            quote_spanned!(at=> key.part::<#krate::shape::#shape, _>(#value);)
        } else {
            quote_spanned!(at=> key.shaped::<#krate::shape::#shape, _>(#before, #value);)
        }
    }

    pub(crate) fn path(
        &self,
        placeholder: &Placeholder,
        names: &Names<'_>,
        this: Option<&Ident>,
    ) -> TokenStream {
        // The name that was checked, even if a macro wrote the parameter and its caller the
        // pattern.
        let root = names.span_of(placeholder, self.literal.span());
        let field = after(root);
        let mut path = TokenStream::new();
        if let Some(this) = this.filter(|_| !names.is_computed(placeholder)) {
            this.to_tokens(&mut path);
        }
        for step in &placeholder.path {
            let is_root = path.is_empty();
            if !is_root {
                quote_spanned!(field=> .).to_tokens(&mut path);
            }
            step_tokens(step, if is_root { root } else { field }).to_tokens(&mut path);
        }
        path
    }
}

/// The place after a pattern. The compiler reports an unknown field at its token, and offers to
/// replace that token by a similar name: the pattern's own span would be replaced as a whole.
fn after(pattern: Span) -> Span {
    // A unit test of the macro runs outside of the compiler.
    if proc_macro::is_available() {
        Span::from(pattern.unwrap().end())
    } else {
        pattern
    }
}

pub(crate) fn writer(derivation: Derivation, krate: &TokenStream) -> TokenStream {
    let here = Span::mixed_site();
    let derivation = Ident::new(derivation.variant(), here);
    hygienic!(#krate::__private::KeyWriter::new(#krate::__private::Derivation::#derivation))
}

pub(crate) fn check_with<'a>(
    with: &[(Ident, TokenStream)],
    patterns: impl Iterator<Item = &'a KeyPattern>,
    errors: &mut Errors,
) {
    let patterns: Vec<&KeyPattern> = patterns.collect();
    for (name, _) in with {
        if !patterns.iter().any(|pattern| pattern.has_root(name)) {
            errors.at(
                name.span(),
                format_args!("`{name}` is not used in a key: write `<{name}>` where it belongs"),
            );
        }
    }
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
    // `check` has refused anything else.
    let mut name = syn::parse_str(step).unwrap_or_else(|_| Ident::new("self", span));
    name.set_span(span);
    name.into_token_stream()
}

#[cfg(test)]
mod tests {
    use super::{KeyPattern, Names, writer};
    use crate::errors::Errors;
    use crate::written::{messages, rows};
    use advisory_pattern::Derivation;
    use proc_macro2::{Span, TokenStream};
    use quote::quote;
    use syn::LitStr;

    /// The expansion must never lock another derivation's number.
    #[test]
    fn every_derivation_is_emitted_as_itself() {
        for derivation in Derivation::ALL {
            let emitted = writer(derivation, &quote!(runtime)).to_string();
            let expected = format!("Derivation :: {derivation:?})");
            assert!(emitted.ends_with(&expected), "{emitted}");
        }
    }

    /// The value's text is that of its shape, and each filter is applied once, in its order.
    #[test]
    fn a_value_is_written_with_its_shape_and_filters() {
        let names = Names {
            of: String::new(),
            known: None,
            has_self: false,
            computed: &[],
        };
        for [pattern, written] in rows(
            r#"
            <a> => key.any("", &a);
            x:<a.b.0> => key.any("x:", &a.b.0);
            <a: int> => key.part::<r::shape::Int, _>(&a);
            x:<a: int> => key.shaped::<r::shape::Int, _>("x:", &a);
            <a|raw> => key.filtered::<r::shape::Raw, _>(&a, &[r::__private::Filter::Raw]);
            <a: raw> => key.filtered::<r::shape::Raw, _>(&a, &[r::__private::Filter::Raw]);
            x:<a|trim|lower> => key.text("x:"); key.filtered::<r::shape::Text, _>(&a, &[r::__private::Filter::Trim, r::__private::Filter::Lower]);
            <a|display> => key.any("", &r::__private::Displayed(&a));
        "#,
        ) {
            let literal = LitStr::new(pattern, Span::call_site());
            let pattern =
                KeyPattern::parse(None, literal, &mut Errors::default()).expect("a pattern");
            let found = pattern.writes(&names, &quote!(r), None);
            let wanted: TokenStream = written.parse().expect("tokens");
            let text = |tokens: &TokenStream| tokens.to_string().replace(' ', "");
            assert_eq!(text(&found), text(&wanted), "{found}");
        }
    }

    #[test]
    fn a_pattern_with_a_mistake_has_its_message() {
        let message = |key: &str| {
            let mut messages = messages(&format!(
                "#[advisory_lock(key = \"{key}\")] async fn run(conn: &mut C, user_id: &str, a: A, b: B) -> QueryResult<()> {{ Ok(()) }}"
            ));
            assert!(messages.len() < 2, "{messages:?}");
            messages.pop().unwrap_or_default()
        };
        let fitting = "job:conn, <a>:<b>, <a.0.größe>, <a: raw>, <a: raw>:<b>, a_id, user_id:job, \
                       42:job, v42";
        for fits in fitting.split(", ") {
            assert_eq!(message(fits), "", "{fits}");
        }
        for [key, start] in rows(
            r#"
            <a: raw>:<b: raw> => different values can render the same key:
            <a.fn> => `fn` is a Rust keyword: write `r#fn`
            <a.7b> => `a.7b` is not a path
            <a.größe²> => `<a.größe²>`: `größe²` is not a name
            <a.99999999999999999999> => `<a.99999999999999999999>`: `99999999999999999999` is not a name
            -7 => `"-7"` is a key pattern
        "#,
        ) {
            assert!(message(key).starts_with(start), "{key}: {}", message(key));
        }
    }
}
