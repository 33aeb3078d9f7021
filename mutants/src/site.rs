//! The places of a file where mutants are switched on and off.

use crate::list::{Mutant, Position};
use proc_macro2::LineColumn;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, UnOp};

pub(crate) type Bytes = Range<usize>;

/// An expression that is written anew, or a point where something is inserted.
pub(crate) struct Site {
    pub(crate) bytes: Bytes,
    pub(crate) kind: Kind,
    /// The numbers of its mutants.
    pub(crate) mutants: Vec<usize>,
    /// The `const fn` around it.
    pub(crate) const_fn: Option<String>,
}

pub(crate) enum Kind {
    /// The start of a function's body.
    Body,
    /// The `const` of a function, which goes: a switch is read while the program runs.
    Const,
    Comparison(Bytes, Bytes),
    Arithmetic(Bytes, Bytes),
    /// `&&` or `||`.
    Logic(Bytes, Bytes),
    Assignment(Bytes, Bytes),
    Unary(Bytes),
    /// The end of an arm's pattern.
    Arm,
    Guard,
    /// A struct's expression, and the field of each mutant with its comma.
    Struct(Vec<Bytes>),
}

/// The sites of a file, an outer one before those inside.
pub(crate) fn sites(code: &str, mutants: &[(usize, &Mutant)]) -> syn::Result<Vec<Site>> {
    let mut finder = Finder {
        mutants,
        sites: Vec::new(),
        const_fn: None,
        is_opaque: false,
    };
    finder.visit_file(&syn::parse_file(code)?);
    let mut sites = finder.sites;
    // Stable: of two with the same bytes, the outer one was found first.
    sites.sort_by_key(|site| (site.bytes.start, usize::MAX - site.bytes.end));
    Ok(sites)
}

struct Finder<'a> {
    mutants: &'a [(usize, &'a Mutant)],
    sites: Vec<Site>,
    const_fn: Option<String>,
    /// Whether the function returns an `impl` type, so that no other value than its own has that type.
    is_opaque: bool,
}

fn bytes(node: &impl Spanned) -> Bytes {
    node.span().byte_range()
}

impl Finder<'_> {
    fn at(&self, genre: &str, start: LineColumn) -> Vec<usize> {
        let start = Position::from(start);
        let here = self.mutants.iter();
        here.filter(|(_, mutant)| mutant.genre == genre && mutant.start == start)
            .map(|(number, _)| *number)
            .collect()
    }

    fn add(&mut self, genre: &str, start: LineColumn, bytes: Bytes, kind: Kind) {
        let mutants = self.at(genre, start);
        self.add_all(mutants, bytes, kind);
    }

    fn add_all(&mut self, mutants: Vec<usize>, bytes: Bytes, kind: Kind) {
        if !mutants.is_empty() {
            let const_fn = self.const_fn.clone();
            self.sites.push(Site {
                bytes,
                kind,
                mutants,
                const_fn,
            });
        }
    }

    fn function(
        &mut self,
        signature: &syn::Signature,
        block: &syn::Block,
        walk: impl FnOnce(&mut Self),
    ) {
        let outer = (self.const_fn.take(), self.is_opaque);
        let first_site = self.sites.len();
        self.const_fn = signature.constness.map(|_| signature.ident.to_string());
        self.is_opaque = false;
        self.visit_return_type(&signature.output);
        if let Some(first) = block.stmts.first()
            && !self.is_opaque
        {
            let start = block.brace_token.span.open().byte_range().end;
            self.add("FnValue", first.span().start(), start..start, Kind::Body);
        }
        walk(self);
        if let Some(token) = &signature.constness {
            // It goes even without mutants inside: others call it, or it calls others.
            let const_fn = self.const_fn.clone();
            let site = Site {
                bytes: bytes(token),
                kind: Kind::Const,
                mutants: Vec::new(),
                const_fn,
            };
            self.sites.insert(first_site, site);
        }
        (self.const_fn, self.is_opaque) = outer;
    }
}

/// Whether an operand of `&&` is a `let`, which exists only there.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block, |this| this.visit_block(&item.block));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block, |this| this.visit_block(&item.block));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block, |this| this.visit_block(block));
        }
    }

    fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
        self.is_opaque = true;
    }

    // What is computed by the compiler.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_generic_argument(&mut self, argument: &'ast syn::GenericArgument) {
        if let syn::GenericArgument::Type(of) = argument {
            self.visit_type(of);
        }
    }
    fn visit_type_array(&mut self, array: &'ast syn::TypeArray) {
        self.visit_type(&array.elem);
    }
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }
    // Anything but an expression.
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let (left, right) = (bytes(&expr.left), bytes(&expr.right));
        let kind = match expr.op {
            BinOp::Eq(_)
            | BinOp::Ne(_)
            | BinOp::Lt(_)
            | BinOp::Le(_)
            | BinOp::Gt(_)
            | BinOp::Ge(_) => Some(Kind::Comparison(left, right)),
            BinOp::And(_) | BinOp::Or(_) => {
                let is_chain = has_let(&expr.left) || has_let(&expr.right);
                (!is_chain).then_some(Kind::Logic(left, right))
            }
            BinOp::Add(_)
            | BinOp::Sub(_)
            | BinOp::Mul(_)
            | BinOp::Div(_)
            | BinOp::Rem(_)
            | BinOp::BitAnd(_)
            | BinOp::BitOr(_)
            | BinOp::BitXor(_)
            | BinOp::Shl(_)
            | BinOp::Shr(_) => Some(Kind::Arithmetic(left, right)),
            _ => Some(Kind::Assignment(left, right)),
        };
        if let Some(kind) = kind {
            self.add("BinaryOperator", expr.op.span().start(), bytes(expr), kind);
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        if !matches!(expr.op, UnOp::Deref(_)) {
            let kind = Kind::Unary(bytes(&expr.expr));
            self.add("UnaryOperator", expr.op.span().start(), bytes(expr), kind);
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let end = bytes(&arm.pat).end;
        self.add("MatchArm", arm.span().start(), end..end, Kind::Arm);
        if let syn::Pat::Guard(pattern) = &arm.pat {
            let guard = &pattern.guard;
            if !has_let(guard) {
                let start = guard.span().start();
                self.add("MatchArmGuard", start, bytes(guard), Kind::Guard);
            }
            self.visit_expr(guard);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_expr_struct(&mut self, expr: &'ast syn::ExprStruct) {
        let (mut mutants, mut fields) = (Vec::new(), Vec::new());
        for field in expr.fields.pairs() {
            let here = self.at("StructField", field.value().span().start());
            fields.extend(here.iter().map(|_| bytes(&field)));
            mutants.extend(here);
        }
        self.add_all(mutants, bytes(expr), Kind::Struct(fields));
        visit::visit_expr_struct(self, expr);
    }
}
