// ---- start.js ------------------------------------------------------------------------------------

async function start() {
  const app = document.getElementById('app');
  try {
    window.explorer = new Page(await unpacked(document.getElementById('data').textContent), app);
    explorer.tokens = tokens; // for tests
    document.body.dataset.ready = 'yes';
  } catch (error) {
    app.replaceChildren(el('p', {class: 'note'}, `This page needs a browser of 2024 or newer. (${error})`));
  }
}

start();
