//! Attention as CUDA C++: the walk along the keys, the work on scores where they were summed, and what becomes of the sums.

use fuseline::error::Result;
use fuseline::ops::prim::Monoid;
use fuseline::ops::{Expr, Number};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Correction, Op, StepId};

use super::attention::{Attention, Fold, SUMS_PAD, Shape};
use super::body::{Accumulator, Body, Lanes};
use super::code::Code;
use super::element;
use super::function::{Function, Grid};
use super::nest::{Nest, is_multiple};
use super::points::decode;

/// The function that computes some stores, which are attention.
pub(super) fn attention(
    nest: &Nest<'_>,
    stores: &[usize],
    attention: &Attention<'_>,
    sites: Vec<String>,
) -> Result<Function> {
    let mut body = Body::new(nest, None, sites);
    attention.print_head(&mut body)?;
    attention.print_walk(&mut body)?;
    attention.print_results(&mut body, stores)?;
    let Shape { rows, keys, .. } = attention.shape;
    let batches = Attention::count(nest, &attention.batch);
    let blocks = Attention::count(nest, &attention.rows).ceildiv(&Dim::int(rows)) * batches;
    let shared = attention.shared_bytes().max(attention.bytes_to_stay_apart(nest, &blocks));
    let is_computed = [&attention.queries, &attention.keys, &attention.values].iter().any(|o| o.is_computed());
    let resident = match attention.shape {
        shape if shape.by_threads() => shape.resident() as u32,
        shape if shape.by_groups() && shape.width <= 64 && !is_computed => 2,
        shape if shape.by_groups() => 1,
        _ => (220 * 1024 / shared).clamp(1, 2) as u32,
    };
    let grid = Grid {
        blocks,
        threads: attention.shape.threads() as u32,
        shared: shared as u32,
        least_blocks: Some(resident),
        cluster: 1,
    };
    Ok(Function::new(body, grid, format!("a block owns {rows} queries and walks along {keys} keys at a time")))
}

impl Attention<'_> {
    fn print_head(&self, body: &mut Body<'_>) -> Result<()> {
        let nest = body.nest;
        let Shape { rows, keys, .. } = self.shape;
        body.line("extern __shared__ __align__(1024) unsigned char memory[];");
        if self.shape.by_threads() {
            self.print_places(body);
        } else {
            let at_keys = self.queries.tile_bytes(self.query_tile());
            let at_values = at_keys + self.keys.tile_bytes(self.key_tile()) * self.buffers();
            body.line(format!(
                "const unsigned shared = shared_address(memory), keys = shared + {at_keys}, values = shared + {at_values};"
            ));
        }
        let down = body.index(&Attention::count(nest, &self.rows).ceildiv(&Dim::int(rows)), &[]);
        body.line(format!("const int down = {down};"));
        // Where later queries have more keys, those of all heads begin, so that the last blocks to run are short ones.
        let (tile, batch) = match self.masked_from.is_some() && !self.batch.is_empty() {
            true => {
                let batches = body.index(&Attention::count(nest, &self.batch), &[]);
                body.line(format!("const int batches = {batches};"));
                ("down - 1 - blockIdx.x / batches", "blockIdx.x % batches")
            }
            false if self.masked_from.is_some() => ("down - 1 - blockIdx.x % down", "blockIdx.x / down"),
            false => ("blockIdx.x % down", "blockIdx.x / down"),
        };
        body.line(format!("const Index row0 = (Index)({tile}) * {rows};"));
        if !self.batch.is_empty() {
            body.line(format!("const Index batch = {batch};"));
            decode(body, nest, &self.batch, "batch", None);
            body.bind(self.batch.iter().copied().collect());
        }
        self.print_sums(body);
        for fold in &self.folds {
            let (id, neutral) = (fold.id.0, &Accumulator::of(nest, fold.id).neutral);
            let all: Vec<String> = (0..self.shape.slots()).map(|_| neutral.to_string()).collect();
            body.line(format!("float fold{id}[{}] = {{{}}};", all.len(), all.join(", ")));
        }
        let stream = Attention::count(nest, &self.stream);
        let tiles = body.index(&stream.ceildiv(&Dim::int(keys)), &[]);
        match self.masked_from {
            Some(from) => {
                let seen = format!("max(0, min({tiles}, (int)((row0 + {} + {keys}) / {keys})))", rows - 1 + from - 1);
                if self.sunk.is_some() {
                    body.line(format!("const int all_tiles = {tiles};"));
                    body.line(format!("int begin = 0, tiles = {seen};"));
                } else {
                    body.line(format!("const int tiles = {seen};"));
                }
            }
            None => body.line(format!("const int tiles = {tiles};")),
        }
        self.print_queries(body)
    }

    /// Who has which rows, and what is summed.
    fn print_sums(&self, body: &mut Body<'_>) {
        let width = self.shape.width;
        if self.shape.by_threads() {
            return self.print_sums_of_threads(body);
        }
        let own = self.shape.slots() / 2;
        body.line(format!("const int row_of_warp = threadIdx.x / 32 * {};", own * 16));
        body.line(format!("float sums[{own}][{}][4] = {{}};", width / 8));
    }

    /// Walks along the keys that have weight; where rows see none of these, along the others too.
    fn print_walk(&self, body: &mut Body<'_>) -> Result<()> {
        let print = |body: &mut Body<'_>| match self.shape.by_groups() {
            true => self.print_stream_by_groups(body),
            false => self.print_stream(body),
        };
        let most = self.folds.iter().find(|fold| fold.is_first && fold.monoid == Monoid::Max);
        let (Some(sunk), Some(most)) = (self.sunk, most) else { return print(body) };
        body.open(AxisSet::EMPTY);
        print(body)?;
        let rows = (0..self.shape.slots()).map(|slot| {
            format!("!(fold{}[{slot}] > {})", most.id.0, element::constant(DType::F32, Number::Float(sunk.to_bits())))
        });
        let rows: Vec<String> = rows.collect();
        body.line(format!("const bool is_sunk = {};", rows.join(" || ")));
        body.line("if (tiles == all_tiles || !__syncthreads_or(is_sunk)) break;");
        body.line("begin = tiles, tiles = all_tiles;");
        body.close("for (;;)");
        Ok(())
    }

    /// The tile that a walk begins with.
    fn first_tile(&self) -> &'static str {
        if self.sunk.is_some() { "begin" } else { "0" }
    }

    /// Walks along the keys.
    fn print_stream(&self, body: &mut Body<'_>) -> Result<()> {
        let keys = self.shape.keys;
        let begin = self.first_tile();
        body.open(AxisSet::EMPTY);
        match self.sunk {
            Some(_) => body.line(format!("const Index key0 = (Index)begin * {keys};")),
            None => body.line("const Index key0 = 0;"),
        }
        self.print_keys(body, "keys")?;
        body.close(&format!("if (tiles > {begin})"));
        body.line("commit_copies();");
        body.open(AxisSet::EMPTY);
        body.line("wait_for_copies<0>();");
        body.line("__syncthreads();");
        body.open(AxisSet::EMPTY);
        body.line(format!("const Index key0 = (Index)tile * {keys};"));
        self.print_values(body, "values")?;
        body.close("");
        body.line("commit_copies();");
        self.print_first_product(body)?;
        self.print_all_scores(body)?;
        if self.shape.by_threads() {
            self.print_weights(body);
        }
        body.line("wait_for_copies<0>();");
        body.line("__syncthreads();");
        body.open(AxisSet::EMPTY);
        body.line(format!("const Index key0 = (Index)(tile + 1) * {keys};"));
        self.print_keys(body, "keys")?;
        body.close("if (tile + 1 < tiles)");
        body.line("commit_copies();");
        self.print_second_product(body)?;
        body.close(&format!("for (int tile = {begin}; tile < tiles; ++tile)"));
        Ok(())
    }

    /// The scores of a tile.
    fn print_first_product(&self, body: &mut Body<'_>) -> Result<()> {
        let Shape { keys, inner, .. } = self.shape;
        if self.shape.by_threads() {
            self.print_first_product_of_threads(body);
            return Ok(());
        }
        let (own, ty) = (self.shape.slots() / 2, element::stored(self.queries.dtype)?);
        body.line(format!("float scores[{own}][{}][4] = {{}};", keys / 8));
        let (q, k) = (&self.queries, &self.keys);
        let (q_lines, k_lines) = (q.lines(self.query_tile()), k.lines(self.key_tile()));
        let settings = format!("{ty}, {inner}, {}, {q_lines}, {}, {k_lines}", q.along_sum, k.along_sum);
        body.line(format!("multiply_tiles<{settings}>(scores, shared, row_of_warp, keys, 0);"));
        Ok(())
    }

    /// What the scores have become, times the values of a tile.
    fn print_second_product(&self, body: &mut Body<'_>) -> Result<()> {
        if self.shape.by_threads() {
            self.print_second_product_of_threads(body);
            return Ok(());
        }
        let (v, ty) = (&self.values, element::stored(self.queries.dtype)?);
        let settings = format!("{ty}, {}, {}", v.along_sum, v.lines(self.value_tile()));
        body.line(format!("multiply_scores<{settings}>(sums, scores, values);"));
        Ok(())
    }

    /// Walks along the keys, by groups of warps: the scores of the next tile are computed while those of this one are worked on.
    fn print_stream_by_groups(&self, body: &mut Body<'_>) -> Result<()> {
        let Shape { keys, inner, width, .. } = self.shape;
        let ty = element::stored(self.queries.dtype)?;
        let (key_bytes, value_bytes) =
            (self.keys.tile_bytes(self.key_tile()), self.values.tile_bytes(self.value_tile()));
        let at_keys = |tile: &str| format!("keys + {tile} % 2 * {key_bytes}");
        let at_values = |tile: &str| format!("values + {tile} % 2 * {value_bytes}");
        let (q, k, v) = (&self.queries, &self.keys, &self.values);
        let (q_lines, k_lines) = (q.lines(self.query_tile()), k.lines(self.key_tile()));
        let settings = format!("{inner}, {}, {q_lines}, {}, {k_lines}", q.along_sum, k.along_sum);
        let multiply = |to: &str, at: &str| {
            format!("multiply_group_{ty}_{keys}<{settings}>({to}, shared, row_of_group, {at}, 0);")
        };
        body.line("const int row_of_group = __shfl_sync(0xffffffffu, threadIdx.x / 128 * 64, 0);");
        let begin = self.first_tile();
        for ahead in [0, 1] {
            let tile = match self.sunk {
                Some(_) => format!("(begin + {ahead})"),
                None => ahead.to_string(),
            };
            body.open(AxisSet::EMPTY);
            body.line(format!("const Index key0 = {tile} * {keys};"));
            self.print_keys(body, &at_keys(&tile))?;
            if ahead == 0 {
                self.print_values(body, &at_values(&tile))?;
            }
            body.close(&format!("if (tiles > {tile})"));
            body.line("commit_copies();");
        }
        body.line(format!("float scores[1][{}][4] = {{}};", keys / 8));
        ["wait_for_copies<1>();", "fence_copies();", "__syncthreads();", "begin_group();"]
            .into_iter()
            .for_each(|line| body.line(line));
        let first = if self.sunk.is_some() { at_keys("begin") } else { "keys".to_owned() };
        body.line(multiply("scores", &first));
        ["commit_group();", "wait_for_groups<0>();"].into_iter().for_each(|line| body.line(line));
        body.open(AxisSet::EMPTY);
        self.print_ahead(body)?;
        ["wait_for_copies<0>();", "fence_copies();", "__syncthreads();"].into_iter().for_each(|line| body.line(line));
        for (ahead, of_keys) in [(2, true), (1, false)] {
            body.open(AxisSet::EMPTY);
            body.line(format!("const Index key0 = (Index)(tile + {ahead}) * {keys};"));
            let next = format!("(tile + {ahead})");
            if of_keys {
                self.print_keys(body, &at_keys(&next))?;
            } else {
                self.print_values(body, &at_values(&next))?;
            }
            body.close(&format!("if (tile + {ahead} < tiles)"));
        }
        body.line("commit_copies();");
        body.line(format!("float following[1][{}][4] = {{}};", keys / 8));
        body.line("begin_group();");
        body.line(multiply("following", &at_keys("(tile + 1)")));
        body.line("commit_group();");
        self.print_all_scores(body)?;
        let settings = format!("{}, {}", v.along_sum, v.lines(self.value_tile()));
        body.line(format!("multiply_scores_{ty}_{width}<{settings}>(sums, scores, {});", at_values("tile")));
        ["commit_group();", "wait_for_groups<0>();"].into_iter().for_each(|line| body.line(line));
        body.line("#pragma unroll");
        body.line(format!("for (int n = 0; n < {}; ++n)", keys / 8));
        body.line("#pragma unroll");
        body.line("  for (int e = 0; e < 4; ++e) scores[0][n][e] = following[0][n][e];");
        body.close(&format!("for (int tile = {begin}; tile < tiles; ++tile)"));
        Ok(())
    }

    /// The coordinates of the row of scores that a slot of this thread is.
    pub(super) fn print_row(&self, body: &mut Body<'_>) {
        let nest = body.nest;
        let rows = body.index(&Attention::count(nest, &self.rows), &[]);
        let place = match self.shape.by_threads() {
            true => format!("row0 + {}", self.place_of_row()),
            false => {
                body.line("const int m = slot / 2, half = slot % 2;");
                "row0 + row_of_warp + m * 16 + half * 8 + threadIdx.x % 32 / 4".to_owned()
            }
        };
        let is_whole = is_multiple(&Attention::count(nest, &self.rows), self.shape.rows);
        let row = if is_whole { place } else { format!("smaller<Index>({place}, {rows} - 1)") };
        body.line(format!("const Index row = {row};"));
        decode(body, nest, &self.rows, "row", None);
    }

    /// Which row of a block a slot of this thread is.
    fn place_of_row(&self) -> String {
        match self.shape.by_threads() {
            true => format!("row_of_thread + slot * {}", self.shape.rows_of_warp()),
            false => "row_of_warp + slot / 2 * 16 + slot % 2 * 8 + threadIdx.x % 32 / 4".to_owned(),
        }
    }

    /// The fold of what the lanes of a row have found.
    fn in_lanes(&self, of: Code, functor: &str) -> Code {
        let fold = match self.shape.by_threads() {
            true => format!("in_second_lanes<{}>", self.shape.lanes),
            false => "in_lanes<4>".to_owned(),
        };
        Code::call(&fold, &[of, Code::atom(functor)])
    }

    /// Which of the lanes of a row this thread is.
    fn lane(&self) -> &'static str {
        if self.shape.by_threads() { "lane_of_row" } else { "threadIdx.x % 4" }
    }

    /// Works on the scores of a tile; where nothing of it is masked, without looking.
    fn print_all_scores(&self, body: &mut Body<'_>) -> Result<()> {
        let keys = self.shape.keys;
        match (self.unmasked, self.masked_from) {
            (Some(_), Some(from)) => {
                self.print_scores(body, true, &format!("if ((Index)(tile + 1) * {keys} <= row0 + {from})"))?;
                self.print_scores(body, false, "else")
            }
            _ => self.print_scores(body, false, ""),
        }
    }

    /// Works on the scores of a tile, row by row: what is folded of them, and what they become.
    fn print_scores(&self, body: &mut Body<'_>, is_clear: bool, when: &str) -> Result<()> {
        // Where threads multiply, results are no narrow floats.
        let by_threads = self.shape.by_threads();
        body.is_near = !body.rounds_everything() && !by_threads;
        body.is_below = !body.rounds_everything() && by_threads && self.is_below;
        body.is_deep = self.is_deep;
        if !when.is_empty() {
            body.open(AxisSet::EMPTY);
        }
        body.open(self.rows.iter().copied().collect());
        self.print_row(body);
        if let Some(held) = self.held {
            self.print_pass(body, true, held, is_clear)?;
        }
        self.print_pass(body, false, self.weights, false)?;
        body.close(&format!("#pragma unroll\nfor (int slot = 0; slot < {}; ++slot)", self.shape.slots()));
        if !when.is_empty() {
            body.close(when);
        }
        (body.is_near, body.is_below, body.is_deep) = (false, false, false);
        Ok(())
    }

    /// One pass over the scores of a row: folds, and what is kept in the place of the scores.
    fn print_pass(&self, body: &mut Body<'_>, is_first: bool, kept: StepId, is_clear: bool) -> Result<()> {
        let nest = body.nest;
        let folds: Vec<&Fold> = self.folds.iter().filter(|fold| fold.is_first == is_first).collect();
        if !is_first {
            self.print_corrections(body, &folds)?;
        }
        for fold in &folds {
            let id = fold.id.0;
            let begin =
                if is_first { Accumulator::of(nest, fold.id).neutral.to_string() } else { format!("fold{id}[slot]") };
            body.line(format!("float part{id} = {begin};"));
        }
        self.print_columns(body, is_first, kept, &folds, is_clear)?;
        for fold in &folds {
            let (id, accumulator) = (fold.id.0, Accumulator::of(nest, fold.id));
            if is_first {
                body.line(format!("const float old{id} = fold{id}[slot];"));
                let part = self.in_lanes(Code::atom(format!("part{id}")), accumulator.functor);
                let next = accumulator.folded(&Code::atom(format!("old{id}")), &part);
                body.line(format!("fold{id}[slot] = {next};"));
                let result = accumulator.result(body, &format!("fold{id}[slot]"));
                body.know(fold.id, result);
            } else {
                body.line(format!("fold{id}[slot] = part{id};"));
            }
        }
        Ok(())
    }

    /// What earlier tiles have summed becomes what it should be.
    fn print_corrections(&self, body: &mut Body<'_>, folds: &[&Fold]) -> Result<()> {
        let rows: AxisSet = self.rows.iter().chain(&self.batch).copied().collect();
        let mut printed: Vec<(StepId, &Expr, Code)> = Vec::new();
        for Correction { fold, on, factor } in self.corrections {
            let known = printed.iter().find(|(known, expr, _)| known == on && *expr == factor).map(|p| p.2.clone());
            let by = match known {
                Some(by) => by,
                None => {
                    let (old, new) = (format!("old{}", on.0), format!("fold{}[slot]", on.0));
                    let by = body.formula(factor, &[Code::atom(old), Code::atom(new)], rows)?;
                    let name = body.fresh("by");
                    body.line(format!("const float {name} = {by};"));
                    printed.push((*on, factor, Code::atom(name.clone())));
                    Code::atom(name)
                }
            };
            if *fold == self.second {
                body.line(match self.shape.by_threads() {
                    true => format!("scale_row(sums[slot], {by});"),
                    false => format!("scale_rows(sums, m, half, {by});"),
                });
            } else if folds.iter().any(|own| own.id == *fold) {
                body.line(format!("fold{}[slot] *= {by};", fold.0));
            }
        }
        Ok(())
    }

    /// A loop over the scores of a row that this thread has: pairs of neighbours.
    fn print_columns(
        &self,
        body: &mut Body<'_>,
        is_first: bool,
        kept: StepId,
        folds: &[&Fold],
        is_clear: bool,
    ) -> Result<()> {
        let nest = body.nest;
        let keys = self.shape.keys;
        let stream: AxisSet = self.stream.iter().copied().collect();
        let count = Attention::count(nest, &self.stream);
        let inner = *self.stream.last().expect("there are keys");
        let own = self.neighbours;
        let is_whole = is_multiple(&count, keys);
        let limit = body.index(&count, &[]);
        body.lanes = (own > 1).then_some(Lanes { axis: inner, count: own });
        body.open(AxisSet::EMPTY);
        let (by_threads, lanes) = (self.shape.by_threads(), self.shape.lanes);
        let together = if by_threads { own } else { own.max(2) };
        let n = if by_threads && own == 1 { "at" } else { "n" };
        let place = format!("(Index)tile * {keys} + {n} * {} + {} * {together}", together * lanes, self.lane());
        let element = match own {
            1 if by_threads => "slot][at".to_owned(),
            _ if by_threads => format!("slot][n * {own} + l"),
            1 => "m][n][half * 2 + e".to_owned(),
            2 => "m][n][half * 2 + l".to_owned(),
            _ => format!("m][n * {} + l / 2][half * 2 + l % 2", own / 2),
        };
        if own > 1 || by_threads {
            body.line(format!("const Index key = {place};"));
        } else {
            body.line("const int n = at / 2, e = at % 2;");
            body.line(format!("const Index key = {place} + e;"));
        }
        body.open(if own > 1 { stream.without(AxisSet::of(inner)) } else { stream });
        let (number, line) = match own {
            1 => ("key", None),
            2 => ("pair", Some("const Index pair = key / 2;".to_owned())),
            _ => ("pack", Some(format!("const Index pack = key / {own};"))),
        };
        line.into_iter().for_each(|line| body.line(line));
        decode(body, nest, &self.stream, number, body.lanes);
        let score = Code::atom(format!("scores[{element}]"));
        let known = if is_first { self.first } else { self.held.unwrap_or(self.first) };
        let known_code =
            if known == self.first { Accumulator::of(nest, known).result(body, score.text()) } else { score.clone() };
        if own > 1 {
            body.know_in_lanes(known, known_code)
        } else {
            body.know(known, known_code)
        }
        for (id, by_row) in self.ahead(nest) {
            let place = Attention::place_ahead(id, by_row);
            body.know_in_lanes(id, element::widened_lane(nest.load(id).tensor.dtype, &place));
        }
        body.open_lanes();
        if let (true, Some(node), Op::Map { expr, args }) = (is_clear, self.unmasked, &nest.kernel.step(kept).op) {
            let value = body.part_of(expr, node, args)?;
            body.line(format!("const float v{} = {value};", kept.0));
            body.know(kept, Code::atom(format!("v{}", kept.0)));
        }
        for fold in folds {
            let accumulator = Accumulator::of(nest, fold.id);
            body.accumulate(fold.id, &accumulator, &format!("part{}", fold.id.0))?;
        }
        let value = if is_first { body.value(kept)? } else { body.value_to_round(kept, self.queries.dtype)? };
        body.line(format!("{score} = {value};"));
        body.close_lanes();
        body.close(&if is_whole { String::new() } else { format!("if (key < {limit})") });
        if !is_whole {
            let nothing = match folds.first() {
                Some(fold) if is_first => Accumulator::of(nest, fold.id).neutral.to_string(),
                _ => "0.0f".to_owned(),
            };
            if own > 2 || (own == 2 && by_threads) {
                body.open(AxisSet::EMPTY);
                body.line("#pragma unroll");
                body.line(format!("for (int l = 0; l < {own}; ++l) {score} = {nothing};"));
                body.close(&format!("if (key >= {limit})"));
            } else if own == 2 {
                body.line(format!(
                    "if (key >= {limit}) scores[m][n][half * 2] = scores[m][n][half * 2 + 1] = {nothing};"
                ));
            } else {
                body.line(format!("if (key >= {limit}) {score} = {nothing};"));
            }
        }
        let (counter, turns) = if own > 1 { ("n", keys / lanes / own) } else { ("at", keys / lanes) };
        body.close(&format!("#pragma unroll\nfor (int {counter} = 0; {counter} < {turns}; ++{counter})"));
        body.lanes = None;
        Ok(())
    }

    /// What becomes of the sums.
    fn print_results(&self, body: &mut Body<'_>, stores: &[usize]) -> Result<()> {
        let nest = body.nest;
        let Shape { rows, width, .. } = self.shape;
        let pitch = width + SUMS_PAD;
        body.line("wait_for_copies<0>();");
        body.line("__syncthreads();");
        body.line("float* const results = (float*)memory;");
        body.line(match self.shape.by_threads() {
            true => self.keep_sums_of_threads(pitch),
            false => format!("keep_sums<{pitch}>(results + row_of_warp * {pitch}, sums);"),
        });
        body.open(AxisSet::EMPTY);
        for (k, fold) in self.folds.iter().enumerate() {
            let id = fold.id.0;
            if !fold.is_first {
                let folded =
                    self.in_lanes(Code::atom(format!("fold{id}[slot]")), Accumulator::of(nest, fold.id).functor);
                body.line(format!("fold{id}[slot] = {folded};"));
            }
            let at = rows * pitch + k as i64 * rows;
            let (lane, line) = (self.lane(), self.place_of_row());
            body.line(format!("if ({lane} == 0) results[{at} + {line}] = fold{id}[slot];"));
        }
        body.close(&format!("#pragma unroll\nfor (int slot = 0; slot < {}; ++slot)", self.shape.slots()));
        body.line("__syncthreads();");
        let lanes = Lanes::of_results(nest, &self.columns, stores);
        let count = lanes.map_or(1, |lanes| lanes.count);
        body.lanes = lanes.filter(|lanes| lanes.count > 1);
        let (pieces, threads) = (width / count, self.shape.threads());
        body.open(AxisSet::EMPTY);
        body.line(format!("const int line = (turn * {threads} + threadIdx.x) / {pieces};"));
        body.line(format!("const int piece = (turn * {threads} + threadIdx.x) % {pieces};"));
        let row_count = body.index(&Attention::count(nest, &self.rows), &[]);
        let column_count = body.index(&Attention::count(nest, &self.columns), &[]);
        let axes: AxisSet = self.rows.iter().chain(&self.columns).copied().collect();
        body.open(body.lanes.map_or(axes, |lanes| axes.without(AxisSet::of(lanes.axis))));
        body.line("const Index row = row0 + line;");
        decode(body, nest, &self.rows, "row", None);
        decode(body, nest, &self.columns, "piece", lanes);
        let lane = if body.lanes.is_some() { " + l" } else { "" };
        let name = format!("results[line * {pitch} + piece * {count}{lane}]");
        let result = Accumulator::of(nest, self.second).result(body, &name);
        if body.lanes.is_some() {
            body.know_in_lanes(self.second, result)
        } else {
            body.know(self.second, result)
        }
        for (k, fold) in self.folds.iter().enumerate() {
            let at = rows * pitch + k as i64 * rows;
            let result = Accumulator::of(nest, fold.id).result(body, &format!("results[{at} + line]"));
            body.know(fold.id, result);
        }
        // Of a single query, results vary over nothing that this level binds.
        let folds = self.folds.iter().map(|fold| fold.id).chain([self.second]);
        if folds.into_iter().any(|fold| body.is_from_outside(nest.axes[fold.index()])) {
            body.stay_inside();
        }
        body.store_all(stores)?;
        body.go_outside();
        body.close(&format!("if (row0 + line < {row_count} && piece * {count} < {column_count})"));
        body.close(&format!("#pragma unroll 4\nfor (int turn = 0; turn < {}; ++turn)", rows * pieces / threads));
        body.lanes = None;
        Ok(())
    }
}
