// What the page uses of CodeMirror. esbuild leaves out everything else.
export {acceptCompletion, autocompletion, completionKeymap} from '@codemirror/autocomplete';
export {defaultKeymap, history, historyKeymap, indentLess, indentMore} from '@codemirror/commands';
export {bracketMatching, indentService, indentUnit} from '@codemirror/language';
export {forEachDiagnostic, nextDiagnostic, previousDiagnostic, setDiagnostics} from '@codemirror/lint';
export {EditorState, StateEffect, StateField, Transaction} from '@codemirror/state';
export {Decoration, EditorView, highlightSpecialChars, hoverTooltip, keymap, lineNumbers, ViewPlugin} from '@codemirror/view';
