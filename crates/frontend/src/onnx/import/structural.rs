//! Operators that the importer itself carries out: those with regions, and those over sequences and optional values.

use fuseline::error::Result;

use super::super::schema::NodeProto;
use super::Importer;
use super::datum::Operand;
use super::node::Place;

/// Imports a node; returns its results.
type Import = for<'i, 'm, 'o, 'p, 's> fn(
    &'i Importer<'m>,
    &'m NodeProto,
    &'o [Operand<'s>],
    Place<'p, 's>,
) -> Result<Vec<Operand<'s>>>;

/// One row of the table.
#[derive(Debug)]
pub struct Structural {
    /// the operator's name
    pub name: &'static str,
    /// its operator set: empty for the standard one
    pub domain: &'static str,
    /// the first version of the operator set whose meaning is covered
    pub since: u32,
    /// the attributes that it knows, regions among them; others are refused
    pub(super) attributes: &'static [&'static str],
    /// what it does
    pub doc: &'static str,
    pub(super) import: Import,
}

const fn row(
    name: &'static str,
    since: u32,
    attributes: &'static [&'static str],
    doc: &'static str,
    import: Import,
) -> Structural {
    Structural { name, domain: "", since, attributes, doc, import }
}

/// The operators of this table, by name.
pub static STRUCTURAL: &[Structural] = &[
    row(
        "ConcatFromSequence",
        11,
        &["axis", "new_axis"],
        "the elements of a sequence joined along an axis",
        |i, n, x, p| i.concat_from_sequence(n, x, p),
    ),
    Structural {
        domain: "ai.onnx.preview",
        ..row(
            "FlexAttention",
            1,
            &["prob_mod", "scale", "score_mod", "softmax_precision"],
            "attention whose scores and probabilities regions change",
            |i, n, x, p| i.import_flex_attention(n, x, p),
        )
    },
    Structural {
        domain: "ai.onnx.preview.training",
        ..row("Gradient", 1, &["xs", "y", "zs"], "the gradient of a value of the graph", |i, n, x, p| {
            i.import_gradient(n, x, p)
        })
    },
    row("Identity", 1, &[], "the value itself", |i, n, x, p| i.identity(n, x, p)),
    row("If", 1, &["else_branch", "then_branch"], "one of two regions", |i, n, x, p| i.import_if(n, x, p)),
    row("Loop", 1, &["body"], "a region repeated", |i, n, x, p| i.import_loop(n, x, p)),
    row("Optional", 15, &["type"], "a value, or nothing", |i, n, x, p| i.optional(n, x, p)),
    row("OptionalGetElement", 15, &[], "the value that is there", |i, n, x, p| i.optional_get_element(n, x, p)),
    row("OptionalHasElement", 15, &[], "whether a value is there", |i, n, x, p| i.optional_has_element(n, x, p)),
    row(
        "Scan",
        8,
        &[
            "body",
            "directions",
            "num_scan_inputs",
            "scan_input_axes",
            "scan_input_directions",
            "scan_output_axes",
            "scan_output_directions",
        ],
        "a region applied to slices, one after another",
        |i, n, x, p| i.import_scan(n, x, p),
    ),
    row("SequenceAt", 11, &[], "an element of a sequence", |i, n, x, p| i.sequence_at(n, x, p)),
    row("SequenceConstruct", 11, &[], "tensors as a sequence", |i, n, x, p| i.sequence_construct(n, x, p)),
    row("SequenceEmpty", 11, &["dtype"], "the sequence without elements", |i, n, x, p| i.sequence_empty(n, x, p)),
    row("SequenceErase", 11, &[], "a sequence without one of its elements", |i, n, x, p| i.sequence_erase(n, x, p)),
    row("SequenceInsert", 11, &[], "a sequence with one element more", |i, n, x, p| i.sequence_insert(n, x, p)),
    row("SequenceLength", 11, &[], "the number of elements of a sequence", |i, n, x, p| i.sequence_length(n, x, p)),
    row("SequenceMap", 17, &["body"], "a region applied to every element of a sequence", |i, n, x, p| {
        i.sequence_map(n, x, p)
    }),
    row("SplitToSequence", 11, &["axis", "keepdims"], "parts of a tensor as a sequence", |i, n, x, p| {
        i.split_to_sequence(n, x, p)
    }),
];

/// The row of an operator.
pub(super) fn find(domain: &str, name: &str) -> Option<&'static Structural> {
    STRUCTURAL.iter().find(|op| op.name == name && op.domain == domain)
}
