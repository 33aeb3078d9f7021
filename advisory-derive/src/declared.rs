//! What is declared once and used in many places: `#[derive(LockKey)]`, `#[derive(KeyPart)]`, and `lock_key!`.

use crate::args::Args;
use crate::check::used;
use crate::errors::Errors;
use crate::key::{KeyPattern, Names, writer};
use crate::record::{self, Entry};
use crate::seen::{self, Known};
use advisory_pattern::Derivation;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Attribute, Data, DeriveInput, Fields, LitStr};

/// `#[derive(LockKey)] #[lock_key("account:<id>")] struct AccountLock { id: AccountId }`.
pub(crate) fn lock_key(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let input = parsed(input, errors)?;
    let name = &input.ident;
    let attribute = only(&input.attrs, "lock_key");
    let Some(arguments) = attribute.and_then(|attribute| attribute.meta.require_list().ok()) else {
        errors.at(
            name.span(),
            "write the key pattern: `#[lock_key(\"account:<id>\")]`",
        );
        return None;
    };
    let declared = Declared::parse(
        arguments.tokens.clone(),
        &[
            "name",
            "component",
            "derivation",
            "allow_ambiguous",
            "allow_overlap",
            "crate",
        ],
        errors,
    )?;
    let Data::Struct(data) = &input.data else {
        errors.at(
            name.span(),
            format_args!(
                "`{name}` is no struct: a declared lock is a struct with the key's values as fields"
            ),
        );
        return None;
    };
    if let Fields::Unnamed(_) = &data.fields {
        errors.at(
            name.span(),
            format_args!(
                "`{name}` has no names for its fields: write `struct {name} {{ id: … }}` and `<id>`"
            ),
        );
        return None;
    }
    let types: Vec<TokenStream> = data
        .fields
        .iter()
        .map(|field| field.ty.to_token_stream())
        .collect();
    let fields = data
        .fields
        .iter()
        .zip(&types)
        .filter_map(|(field, ty)| Some((field.ident.as_ref()?.to_string(), Some(ty))));
    let names = Names {
        of: format!("field of `{name}`"),
        known: Some(fields.collect()),
        has_self: false,
    };
    declared
        .pattern
        .check(&names, declared.args.allow_ambiguous.is_some(), errors);
    if let Some(slice) = declared.pattern.slice() {
        errors.at(
            declared.pattern.literal.span(),
            format_args!(
                "`<{}>` would be several locks, and a declared lock is one: name a single value",
                slice.source
            ),
        );
    }

    let word = name.to_string();
    if errors.is_empty() {
        declared.note(&names, format!("struct `{word}`"), Some(&word), errors);
    }
    let purpose = input.attrs.iter().map(ToTokens::to_token_stream).collect();
    let record = declared.record("struct", word, record::purpose(&purpose), &names);

    let krate = declared.krate();
    // The receiver is the user's own `self`, so that a field is found whatever the hygiene of the pattern's tokens.
    let this = Ident::new("self", declared.pattern.literal.span());
    let writes = declared.pattern.writes(&names, &krate, Some(&this));
    let new = writer(declared.derivation(), &krate);
    let text = declared.pattern.literal.value();
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let receiver = Ident::new("self", declared.pattern.literal.span());
    Some(quote_spanned!(here=>
        #record
        impl #generics #krate::LockKey for #name #arguments #bounds {
            fn key(&#receiver) -> #krate::Key {
                let mut key = #new;
                #writes
                key.finish()
            }

            fn rendered(&#receiver) -> #krate::__private::String {
                let mut key = #krate::__private::KeyWriter::text_only();
                #writes
                key.into_text()
            }

            fn pattern(&self) -> &'static str {
                #text
            }
        }
    ))
}

/// `#[derive(KeyPart)]` for a newtype or a field-less enum.
pub(crate) fn key_part(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let input = parsed(input, errors)?;
    let name = &input.ident;
    let krate = match only(&input.attrs, "key_part")
        .and_then(|attribute| attribute.meta.require_list().ok())
    {
        Some(list) => Args::parse(list.tokens.clone(), &["crate"], errors).krate,
        None => None,
    };
    let krate = krate.unwrap_or_else(|| quote!(::advisory_runtime));
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let (shape, render) = match &input.data {
        Data::Struct(data) if data.fields.len() == 1 => {
            let field = data.fields.iter().next()?;
            let (ty, member) = (&field.ty, data.fields.members().next()?);
            (
                quote_spanned!(here=> <#ty as #krate::KeyPart>::Shape),
                quote_spanned!(here=> #krate::KeyPart::render(&self.#member, text)),
            )
        }
        Data::Enum(data)
            if !data.variants.is_empty()
                && data
                    .variants
                    .iter()
                    .all(|variant| variant.fields.is_empty()) =>
        {
            let arms = data.variants.iter().map(|variant| {
                let (variant, text) = (&variant.ident, rendered_variant(variant, errors));
                quote_spanned!(here=> Self::#variant { .. } => #text,)
            });
            let arms: Vec<_> = arms.collect();
            (
                quote_spanned!(here=> #krate::shape::Text),
                quote_spanned!(here=> text.push_str(match self { #(#arms)* })),
            )
        }
        _ => {
            let wanted = format_args!(
                "`{name}` has no one text: `KeyPart` is derived for a struct with one field and for an enum whose variants have none"
            );
            errors.at(name.span(), wanted);
            return None;
        }
    };
    Some(quote_spanned!(here=>
        impl #generics #krate::KeyPart for #name #arguments #bounds {
            type Shape = #shape;

            fn render(&self, text: &mut #krate::KeyText<'_>) {
                #render
            }
        }
    ))
}

/// The variant's own name, or what `#[key_part("…")]` on it says.
fn rendered_variant(variant: &syn::Variant, errors: &mut Errors) -> String {
    let Some(attribute) = only(&variant.attrs, "key_part") else {
        return variant.ident.to_string();
    };
    if let Ok(text) = attribute.parse_args::<LitStr>() {
        text.value()
    } else {
        errors.at(
            variant.ident.span(),
            "write the variant's text: `#[key_part(\"text\")]`",
        );
        String::new()
    }
}

/// `lock_key!("account:<id>")`: the key of names that are in scope.
pub(crate) fn inline(input: TokenStream, errors: &mut Errors) -> Option<TokenStream> {
    let here = Span::mixed_site();
    let declared = Declared::parse(
        input,
        &[
            "with",
            "name",
            "component",
            "derivation",
            "allow_ambiguous",
            "allow_overlap",
            "crate",
        ],
        errors,
    )?;
    let names = Names {
        of: "name in scope".to_owned(),
        known: None,
        has_self: true,
    };
    declared
        .pattern
        .check(&names, declared.args.allow_ambiguous.is_some(), errors);
    if let Some(slice) = declared.pattern.slice() {
        errors.at(
            declared.pattern.literal.span(),
            format_args!(
                "`<{}>` would be several keys, and `lock_key!` is one: call it for each element",
                slice.source
            ),
        );
    }
    if errors.is_empty() {
        declared.note(&names, "`lock_key!`".to_owned(), None, errors);
    }
    let record = declared.record("macro", "lock_key!".to_owned(), None, &names);
    let with = declared.args.with.as_deref().unwrap_or_default();
    used(with, std::iter::once(&declared.pattern), errors);
    let with = with
        .iter()
        .map(|(name, expression)| quote_spanned!(here=> let #name = #expression;));
    let key = declared
        .pattern
        .expression(&names, declared.derivation(), &declared.krate());
    Some(quote_spanned!(here=> { #record #(#with)* #key }))
}

/// A pattern and the arguments behind it.
struct Declared {
    pattern: KeyPattern,
    args: Args,
}

impl Declared {
    fn parse(tokens: TokenStream, known: &[&str], errors: &mut Errors) -> Option<Self> {
        let mut tokens = tokens.into_iter();
        let first: TokenStream = tokens.next().into_iter().collect();
        let Ok(literal) = syn::parse2::<LitStr>(first) else {
            errors.at(
                Span::call_site(),
                "expected a key pattern: a string literal such as `\"account:<id>\"`",
            );
            return None;
        };
        match tokens.next() {
            Some(TokenTree::Punct(punct)) if punct.as_char() != ',' => {
                errors.at(
                    punct.span(),
                    "expected `,` and an argument behind the key pattern",
                );
            }
            _ => {}
        }
        let args = Args::parse(tokens.collect(), known, errors);
        Some(Self {
            pattern: KeyPattern::parse(literal, errors)?,
            args,
        })
    }

    fn note(&self, names: &Names<'_>, item: String, word: Option<&str>, errors: &mut Errors) {
        let sharing = self.args.sharing();
        seen::note(
            &[self.pattern.known(names)],
            self.derivation(),
            &sharing,
            item,
            word,
            errors,
        );
    }

    fn record(
        &self,
        kind: &str,
        function: String,
        purpose: Option<String>,
        names: &Names<'_>,
    ) -> TokenStream {
        let Known { written, key, span } = self.pattern.known(names);
        let entry = Entry {
            kind,
            function,
            purpose,
            scope: "none",
            derivation: self.derivation(),
            keys: vec![(written, key)],
            span,
        };
        record::emit(entry, &self.args, &self.krate())
    }

    fn derivation(&self) -> Derivation {
        self.args.derivation.unwrap_or(Derivation::Sha256)
    }

    fn krate(&self) -> TokenStream {
        self.args
            .krate
            .clone()
            .unwrap_or_else(|| quote!(::advisory_runtime))
    }
}

fn parsed(input: TokenStream, errors: &mut Errors) -> Option<DeriveInput> {
    syn::parse2(input).map_err(|error| errors.push(error)).ok()
}

fn only<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a Attribute> {
    attributes
        .iter()
        .find(|attribute| attribute.path().is_ident(name))
}
