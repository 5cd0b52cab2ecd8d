// Colours of the text of stages: comments, numbers, words of the language. A line is cut into pieces [text, class].

import { el } from "./dom.js";

const C_WORDS = [
  "for if else return static inline const int int64_t int32_t int16_t int8_t uint64_t uint32_t uint16_t uint8_t size_t void float",
  "double char struct typedef goto while do break continue restrict sizeof unsigned long short switch case default template",
  "typename constexpr auto bool true false asm volatile extern __global__ __shared__ __device__ __launch_bounds__",
];
const TEXT_WORDS = [
  "for if else parallel once simd by call kernel program region input output in out over sum max min where and or of while plan",
  "rejected estimate computes fused wave arena constant buffer index edge pattern reads outside forbidden dependence excluded",
  "function routine run when true false layout const const_pool param assume default cast select graph let return",
];
const wordsOf = (lines) => new Set(lines.join(" ").split(" "));
const WORDS = { c: wordsOf(C_WORDS), text: wordsOf(TEXT_WORDS) };
const TYPE = /^(fp|f|i|u|bf|c)\d+(x\d+)?$|^bool$|^index$|^f32x\d+|^i32x\d+/;
const PIECE = {
  source: /\/\/.*$|#.*$|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\d[\w.]*/g,
  c: /\/\*.*?\*\/|\/\/.*$|"(?:[^"\\]|\\.)*"|#\w+|[A-Za-z_]\w*|\d[\w.]*/g,
  text: /#.*$|"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\d[\w.]*/g,
};

/** The pieces of a line of the language `c`, `source` (a model's own text) or `text` (in which // divides). */
export function pieces(line, language) {
  const out = [];
  let end = 0;
  for (const m of line.matchAll(PIECE[language])) {
    if (m.index > end) out.push([line.slice(end, m.index), ""]);
    out.push([m[0], kind(m[0], language)]);
    end = m.index + m[0].length;
  }
  if (end < line.length) out.push([line.slice(end), ""]);
  return out;
}

function kind(word, language) {
  const first = word[0];
  if (first === "/" || (first === "#" && language !== "c")) return "comment";
  if (first === "#" || first === '"') return "literal";
  if (first >= "0" && first <= "9") return "number";
  if (TYPE.test(word)) return "type";
  if ((WORDS[language] ?? WORDS.text).has(word)) return "word";
  return language === "text" && word === word.toUpperCase() && word.length > 2 ? "word" : "";
}

/** The language of a stage's text. */
export function languageOf(stage) {
  return stage === "c" || stage === "cu" ? "c" : stage === "source" ? "source" : "text";
}

/** A line as text and spans with the class of each piece. */
export function span(line, language) {
  return pieces(line, language).map(([text, name]) => (name ? el("span", { class: `t-${name}` }, text) : text));
}
